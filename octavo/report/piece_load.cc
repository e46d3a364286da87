// Loads values, codes and scales of a piece, of any type and strides.
#include <cstring>

#include "octavo/format/decode.h"
#include "octavo/report/piece_internal.h"

namespace octavo {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void widen(const Matrix& from, double* out) {
  for (std::int64_t row = 0; row < from.rows; ++row) {
    const std::byte* at = static_cast<const std::byte*>(from.data) + row * from.row_pitch;
    for (std::int64_t col = 0; col < from.cols; ++col, at += from.col_stride)
      *out++ = static_cast<double>(load<T>(at));
  }
}

}  // namespace

void load_values(const Measurement& job, const Piece& piece, PieceScratch& scratch) {
  const PlanDim &row = job.plan.row, &col = job.plan.col;
  Matrix from{.data = static_cast<std::byte*>(job.values.data) + piece.value_offset +
                      piece.row * row.value_stride + piece.col * col.value_stride,
              .dtype = job.values.dtype,
              .rows = piece.rows,
              .cols = piece.cols,
              .row_pitch = row.value_stride,
              .col_stride = col.value_stride};
  if (from.dtype == DType::f64) return widen<double>(from, scratch.values.data());
  if (from.dtype == DType::f32) return widen<float>(from, scratch.values.data());
  from.format = from.dtype == DType::f16 ? f16_format : bf16_format;
  from.dtype = DType::code;
  const std::int64_t bytes = sizeof(float);
  const Matrix to{.data = scratch.narrow.data(),
                  .dtype = DType::f32,
                  .rows = piece.rows,
                  .cols = piece.cols,
                  .row_pitch = bytes * piece.cols,
                  .col_stride = bytes};
  job.decode_entry({}, from, to);
  widen<float>(to, scratch.values.data());
}

void load_codes(const Measurement& job, const Piece& piece, PieceScratch& scratch) {
  std::uint16_t* out = scratch.codes.data();
  const View& codes = job.copy->codes.view();
  const int bits = codes.format.bits();
  const auto mask = static_cast<std::uint16_t>(codes.format.code_mask());
  for (std::int64_t r = 0; r < piece.rows; ++r) {
    const std::byte* row = static_cast<const std::byte*>(codes.data) + piece.code_offset +
                           (piece.row + r) * job.plan.row.code_stride;
    if (codes.packed) {
      for (std::int64_t c = piece.col; c < piece.col + piece.cols; ++c) {
        const std::int64_t bit = c * bits;
        const std::byte* at = row + bit / 8;
        auto word = std::to_integer<unsigned>(at[0]);
        // The second byte only where the code reaches into it: a row ends with its last code.
        if (bit % 8 + bits > 8) word |= std::to_integer<unsigned>(at[1]) << 8;
        *out++ = static_cast<std::uint16_t>(word >> bit % 8) & mask;
      }
      continue;
    }
    const std::byte* at = row + piece.col * job.plan.col.code_stride;
    for (std::int64_t c = 0; c < piece.cols; ++c, at += job.plan.col.code_stride)
      *out++ = (codes.format.code_bytes() == 1 ? std::to_integer<std::uint16_t>(*at)
                                               : load<std::uint16_t>(at)) &
               mask;
  }
}

double Measurement::scale(std::int64_t index) const {
  const View& view = scales.view();
  const std::byte* at = static_cast<const std::byte*>(view.data) + index * scale_bytes;
  double one = 0;
  if (view.dtype == DType::f32) {
    one = static_cast<double>(load<float>(at));
  } else if (view.dtype == DType::code && view.format.code_bytes() == 1) {
    one = octavo::decode(view.format, std::to_integer<std::uint32_t>(*at));
  } else {
    const Format& format = view.dtype == DType::f16    ? f16_format
                           : view.dtype == DType::bf16 ? bf16_format
                                                       : view.format;
    one = octavo::decode(format, load<std::uint16_t>(at));
  }
  return one * tensor_scale;
}

}  // namespace octavo
