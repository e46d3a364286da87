// The convert driver, from matrices to spans: splits a matrix over threads, walks it in blocks, and
// copies the elements of a block to contiguous memory where they are not (strides, packing, codes
// as sources, in place) before a span kernel converts them. The staging buffers live on the stack.
#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/convert/count.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kBlock = 16 * kStage;  // elements of one unit of work

// Values that take this much memory are not in a cache when the next call reads them, and a plain
// store reads a line before it overwrites it.
constexpr std::int64_t kStreamBytes = std::int64_t{16} << 20;

// Calls visit(row, col, n) for runs of blocks that cover the matrix, as long as a row and the
// thread's part allow: a kernel sets up its constants once per run. Runs of one thread come in
// order.
template <typename Visit>
void for_each_run(const Exec& exec, std::int64_t rows, std::int64_t cols, bool in_order,
                  Visit&& visit) {
  if (rows == 0 || cols == 0) return;
  const std::int64_t per_row = (cols + kBlock - 1) / kBlock, units = rows * per_row;
  const auto run = [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t unit = first; unit < last;) {
      const std::int64_t row = unit / per_row, row_unit = row * per_row;
      const std::int64_t end = std::min(last, row_unit + per_row), col = (unit - row_unit) * kBlock;
      visit(row, col, std::min(cols, (end - row_unit) * kBlock) - col);
      unit = end;
    }
  };
  const int threads = in_order ? 1 : useful_threads(exec, rows * cols);
  parallel_parts(units, parts_for(units, threads), threads, run);
}

}  // namespace

void encode_matrix(const Isa& isa, const Exec& exec, const Matrix& values, const Matrix& codes,
                   const EncodePolicy& policy, Counts* counts) {
  const bool from_codes = values.dtype == DType::code;
  // Codes of another format are decoded first: f32 holds all values of most formats, f64 those of
  // any.
  const DType source = !from_codes               ? values.dtype
                       : fits_f32(values.format) ? DType::f32
                                                 : DType::f64;
  EncodePolicy span_policy = policy;
  span_policy.via_f32 = policy.via_f32 && source == DType::f64;
  const Encoder encoder = make_encoder(codes.format, span_policy, source);
  const EncodeSpan encode_span = isa.encode(encoder);
  const Decoder decoder{.format = values.format, .target = source};
  const DecodeSpan decode_span = from_codes ? isa.decode(decoder) : nullptr;
  const bool in_place = values.data == codes.data;
  const bool direct = !from_codes && !in_place && is_contiguous(values) && is_contiguous(codes);
  AtomicCounts totals;

  const auto visit = [&](std::int64_t row, std::int64_t block, std::int64_t n) {
    const std::uint64_t block_index =
        policy.first_index + static_cast<std::uint64_t>(row * values.cols + block);
    if (direct && counts == nullptr) {
      return encode_span(encoder, element(values, row, block), element(codes, row, block), n,
                         block_index);
    }
    alignas(64) std::byte gathered[kStage * 8], decoded[kStage * 8], encoded[kStage * 2];
    Counts met;
    for (std::int64_t done = 0; done < n; done += kStage) {
      const std::int64_t count = std::min(kStage, n - done);
      const std::uint64_t index = block_index + static_cast<std::uint64_t>(done);
      const void* span = gather(values, row, block + done, count, gathered);
      if (from_codes) {
        decode_span(decoder, span, decoded, count);
        span = decoded;
      }
      encode_span(encoder, span, encoded, count, index);
      if (counts != nullptr) met += isa.count(encoder, span, count, index);
      scatter(codes, row, block + done, count, encoded);
    }
    if (counts != nullptr) totals.add(met);
  };
  for_each_run(exec, values.rows, values.cols, in_place, visit);
  if (counts != nullptr) *counts += totals.get();
}

void decode_matrix(const Isa& isa, const Exec& exec, const Matrix& codes, const Matrix& values) {
  const bool in_place = values.data == codes.data;
  const bool direct = !in_place && is_contiguous(codes) && is_contiguous(values);
  const std::int64_t bytes = values.rows * values.cols * bytes_of(values);
  const Decoder decoder{
      .format = codes.format, .target = values.dtype, .streams = direct && bytes >= kStreamBytes};
  const DecodeSpan decode_span = isa.decode(decoder);
  const auto visit = [&](std::int64_t row, std::int64_t block, std::int64_t n) {
    if (direct)
      return decode_span(decoder, element(codes, row, block), element(values, row, block), n);
    alignas(64) std::byte gathered[kStage * 2], decoded[kStage * 8];
    const bool writes_direct = !in_place && is_contiguous(values);
    for (std::int64_t done = 0; done < n; done += kStage) {
      const std::int64_t count = std::min(kStage, n - done);
      const void* span = gather(codes, row, block + done, count, gathered);
      if (writes_direct) {
        decode_span(decoder, span, element(values, row, block + done), count);
      } else {
        decode_span(decoder, span, decoded, count);
        scatter(values, row, block + done, count, decoded);
      }
    }
  };
  for_each_run(exec, codes.rows, codes.cols, in_place, visit);
}

std::int64_t count_nan_matrix(const Exec& exec, const Matrix& values) {
  AtomicCounts totals;
  for_each_run(exec, values.rows, values.cols, false,
               [&](std::int64_t row, std::int64_t block, std::int64_t n) {
                 alignas(64) std::byte gathered[kStage * 8];
                 Counts met;
                 for (std::int64_t done = 0; done < n; done += kStage) {
                   const std::int64_t count = std::min(kStage, n - done);
                   met.nan +=
                       count_nan_span(values.dtype, values.format,
                                      gather(values, row, block + done, count, gathered), count);
                 }
                 totals.add(met);
               });
  return totals.get().nan;
}

}  // namespace octavo::cpu
