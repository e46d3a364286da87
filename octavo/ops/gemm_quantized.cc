// A product that goes straight into a quantization.
#include <algorithm>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/convert/device_tensor.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/operand_rows_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

// Elements of the result that are kept in f32 at a time: what a cache holds, on a device the one
// that all its processors share, whose products need more rows to keep them busy. And rows at
// least: products of few rows have kernels of their own, whose bits are not those that the same
// rows have among many.
constexpr std::int64_t kStripElements = 1024 * 1024, kStripOnDevice = 8 * kStripElements,
                       kLeastRows = 64;

QuantizeOptions options_of(const GemmOptions& options) {
  return {.threads = options.threads,
          .backend = options.backend,
          .log = options.log,
          .stream = options.stream,
          .workspace = options.workspace};
}

// A device that folds MX operands (docs/numerics/gemm.md) does so by what all rows have: a strip of
// them could have other bits.
bool is_folded_as_a_whole(const Operand& a, const GemmOptions& options, const Device& device) {
  return device.kind != DeviceKind::cpu && options.accumulator == Accumulator::native &&
         a.quantized() != nullptr && a.quantized()->scaling.scale.format == ScaleFormat::e8m0;
}

// How many rows of the result can be quantized apart from the others, and multiples of it; 0: none.
// An amax of the whole tensor, or a columnwise copy, whose tiles lie across rows, needs all of
// them.
std::int64_t rows_together(const Operand& a, const Shape& shape, const Scaling& scaling) {
  const bool along_last = scaling.axis == -1 || scaling.axis == 1;
  if (shape.rank() != 2 || a.shape().rank() != 2 || !along_last || scaling.columnwise ||
      scaling.tile.rows == 0 || scaling.scale.format == ScaleFormat::e4m3_f32 ||
      scaling.scale_order != ScaleOrder::row_major)
    return 0;
  const std::int64_t tile = rows_of_a_tile(a);
  return tile == 0 ? 0 : std::lcm(tile, std::min(scaling.tile.rows, shape[0]));
}

}  // namespace

QuantizedTensor gemm_quantized(const Operand& a, const Operand& b, const Scaling& scaling,
                               const GemmOptions& options) {
  check_scaling(scaling);
  const Shape shape = gemm_shape(a, b);
  const Device device = a.quantized() != nullptr ? a.quantized()->device() : a.values().device;
  QuantizedTensor out = make_quantized(shape, DType::f32, scaling, device, options.stream);
  GemmOptions values_wanted = options;
  values_wanted.out = DType::f32;
  const std::int64_t together =
      is_folded_as_a_whole(a, options, device) ? 0 : rows_together(a, shape, scaling);
  const std::int64_t elements = device.kind == DeviceKind::cpu ? kStripElements : kStripOnDevice;
  if (together == 0 || element_count(shape) <= elements) {
    const Tensor values = gemm(a, b, values_wanted);
    quantize_into(values.view(), out, options_of(options));
    return out;
  }
  // Of the whole: a strip of the wrong one would fit.
  if (options.residual.data != nullptr && options.residual.shape != shape)
    fail(ErrorCode::invalid_argument, "gemm", "the residual has shape ",
         to_string(options.residual.shape), ", wanted ", to_string(shape));
  const std::int64_t rows = shape[0], wanted = std::max(kLeastRows, elements / shape[1]);
  const std::int64_t strip = (wanted + together - 1) / together * together;
  const Tensor memory =
      values_on(device, {std::min(strip + kLeastRows, rows), shape[1]}, DType::f32, options.stream);
  for (std::int64_t row = 0, count = 0; row < rows; row += count) {
    const bool few_left = rows - row - strip < kLeastRows;
    count = few_left ? rows - row : strip;
    if (options.residual.data != nullptr)
      values_wanted.residual = rows_of(options.residual, row, count);
    const View values = rows_of(memory.view(), 0, count);
    QuantizedTensor part = rows_of(out, row, count);
    gemm_into(OperandRows(a, row, count).operand(), b, values, values_wanted);
    quantize_into(values, part, options_of(options));
    // B is folded for each strip, by what it holds itself: that of the first says it for all. A is
    // not, or there would be no strips.
    values_wanted.folded = nullptr;
  }
  return out;
}

}  // namespace octavo
