#include "cli/npy/cast_stream.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/format/parse_format.h"
#include "octavo/tensor/tensor.h"

namespace octavo::cli {
namespace {

// Elements per chunk: enough to occupy every core, few enough for the L2 caches and for a small
// machine. A multiple of 8, so that a chunk of a packed row ends on a byte.
constexpr std::int64_t kPiece = std::int64_t{1} << 20;

// The buffer of one side for one chunk, reused.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes) : tensor_(Tensor::codes({bytes}, e4m3fn)) {}
  [[nodiscard]] std::span<std::byte> first(std::int64_t bytes) const {
    return tensor_.bytes().first(static_cast<std::size_t>(bytes));
  }

 private:
  Tensor tensor_;
};

View code_view_of(const CastSide& side, void* data, std::int64_t rows, std::int64_t cols) {
  return code_view(data, side.element.as_format(), {rows, cols}, side.packed);
}

View source_view(const CastSide& side, void* data, std::int64_t rows, std::int64_t cols) {
  if (side.element.is_code()) return code_view_of(side, data, rows, cols);
  return value_view(data, side.element.dtype, {rows, cols});
}

// Any side as f64, which holds every value of every format.
void as_doubles(const CastSide& side, std::span<std::byte> data, std::int64_t rows,
                std::int64_t cols, int threads, std::vector<double>& out) {
  out.resize(static_cast<std::size_t>(rows * cols));
  if (side.element.has_16_bits_or_fewer()) {
    decode(code_view_of(side, data.data(), rows, cols),
           value_view(out.data(), DType::f64, {rows, cols}), {.threads = threads});
  } else if (side.element.dtype == DType::f64) {
    std::copy_n(reinterpret_cast<const double*>(data.data()), out.size(), out.begin());
  } else {
    std::copy_n(reinterpret_cast<const float*>(data.data()), out.size(), out.begin());
  }
}

void add_errors(const std::vector<double>& given, const std::vector<double>& got,
                CastError& error) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!std::isfinite(given[i]) || !std::isfinite(got[i])) continue;
    const double difference = std::fabs(got[i] - given[i]);
    error.max_absolute = std::max(error.max_absolute, difference);
    if (given[i] != 0)
      error.max_relative = std::max(error.max_relative, difference / std::fabs(given[i]));
    error.sum_error2 += difference * difference;
    error.sum_input2 += given[i] * given[i];
  }
}

// decode() does not count; the counts follow from its output. Where decoding is exact only NaN can
// occur, and `got` is sufficient.
Counts count_decoded(const CastPlan& plan, const std::vector<double>& given,
                     const std::vector<double>& got) {
  Counts counts;
  for (std::size_t i = 0; i < got.size(); ++i) {
    counts.nan += std::isnan(got[i]);
    if (plan.exact) continue;
    counts.saturated += std::isfinite(given[i]) && std::isinf(got[i]);
    counts.flushed += given[i] != 0 && got[i] == 0;
  }
  return counts;
}

Counts encode_piece(const CastPlan& plan, std::span<std::byte> from, std::span<std::byte> to,
                    std::int64_t rows, std::int64_t cols, std::int64_t first_element, Log& log) {
  Counts counts;
  EncodePolicy policy = plan.policy;
  policy.first_index += static_cast<std::uint64_t>(first_element);
  try {
    encode(source_view(plan.source, from.data(), rows, cols),
           code_view_of(plan.target, to.data(), rows, cols), policy,
           {.threads = plan.threads, .counts = &counts, .log = &log});
  } catch (const Error& error) {
    const Format format = plan.target.element.as_format();
    const bool nan_refused = error.code() == ErrorCode::invalid_argument && !format.has_nan() &&
                             policy.nan_input == NanInput::error;
    if (!nan_refused) throw;
    fail(ErrorCode::invalid_argument, "cast", "the input holds NaN, and ", format_name(format),
         " cannot; say what it becomes with --nan zero or --nan max");
  }
  return counts;
}

}  // namespace

CastResult stream_cast(const CastPlan& plan, NpyReader& input, WholeFile& output,
                       bool measure_error) {
  // Whole rows where they are short, else pieces of one row.
  const std::int64_t piece_cols = std::max<std::int64_t>(1, std::min(plan.cols, kPiece));
  const std::int64_t piece_rows =
      std::max<std::int64_t>(1, std::min(plan.rows, kPiece / piece_cols));
  const Buffer from_buffer(plan.source.bytes(piece_rows, piece_cols)),
      to_buffer(plan.target.bytes(piece_rows, piece_cols));
  std::vector<double> given, got;

  const std::string header = write_npy_header(plan.output_header);
  output.reserve(static_cast<std::int64_t>(header.size()) +
                 plan.target.bytes(plan.rows, plan.cols));
  output.write(std::as_bytes(std::span(header)));

  CastResult result;
  Progress progress("cast", input.data_bytes());
  Log log([](std::string_view message) { say(text("octavo: note: ", message)); });
  const auto convert_piece = [&](std::int64_t rows, std::int64_t cols, std::int64_t first_element) {
    const std::span<std::byte> from = from_buffer.first(plan.source.bytes(rows, cols));
    const std::span<std::byte> to = to_buffer.first(plan.target.bytes(rows, cols));
    input.read(from);
    if (plan.encodes) {
      result.counts += encode_piece(plan, from, to, rows, cols, first_element, log);
    } else {
      decode(code_view_of(plan.source, from.data(), rows, cols),
             value_view(to.data(), plan.target.element.dtype, {rows, cols}),
             {.threads = plan.threads, .log = &log});
    }
    const bool counts_decoded = !plan.encodes;
    if (measure_error || (counts_decoded && !plan.exact))
      as_doubles(plan.source, from, rows, cols, plan.threads, given);
    if (measure_error || counts_decoded) as_doubles(plan.target, to, rows, cols, plan.threads, got);
    if (counts_decoded) result.counts += count_decoded(plan, given, got);
    if (measure_error) add_errors(given, got, result.error);
    output.write(to);
    progress.advance(static_cast<std::int64_t>(from.size()));
  };

  for (std::int64_t row = 0; row < plan.rows; row += piece_rows) {
    const std::int64_t rows = std::min(piece_rows, plan.rows - row);
    for (std::int64_t col = 0; col < plan.cols; col += piece_cols) {
      convert_piece(rows, std::min(piece_cols, plan.cols - col), row * plan.cols + col);
    }
  }
  if (result.error.sum_input2 > 0) {
    result.error.rms_relative = std::sqrt(result.error.sum_error2 / result.error.sum_input2);
  }
  result.seconds = progress.seconds();
  return result;
}

}  // namespace octavo::cli
