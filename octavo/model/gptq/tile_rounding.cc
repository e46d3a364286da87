#include "octavo/model/gptq/tile_rounding_internal.h"

#include <cmath>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/round/encode.h"
#include "octavo/scale/tile_scale.h"
#include "octavo/tensor/quantized_view.h"

namespace octavo::gptq_detail {
namespace {

constexpr const char* kOp = "gptq";

std::uint32_t bits_at(const Tensor& scales, std::int64_t at) {
  const std::byte* const bytes = scales.bytes().data();
  std::uint32_t wide = 0;
  const std::size_t size = scales.dtype() == DType::f32 ? 4 : scales.dtype() == DType::code ? 1 : 2;
  std::memcpy(&wide, bytes + at * static_cast<std::int64_t>(size), size);  // little-endian
  return wide;
}

TileScale scale_of_bits(const ScaleSpec& spec, std::uint32_t bits, float tensor_scale) {
  if (spec.format == ScaleFormat::e4m3_f32) return scale_of_code(spec, bits, tensor_scale);
  if (spec.format == ScaleFormat::e8m0)
    return scale_of_exponent(spec.format, static_cast<int>(bits) - 127);
  const float scale = stored_scale(spec.format, bits);
  return {bits, scale, divides(spec) ? scale : reciprocal(scale)};
}

}  // namespace

void check_scaling_fits(const Scaling& scaling) {
  const auto wrong = [](const auto&... parts) {
    fail(ErrorCode::unsupported, kOp, parts...,
         "; expected a preset such as nvfp4 or mxfp4, or --method rtn");
  };
  if (scaling.format.bits() > 8) wrong("got codes of ", scaling.format.bits(), " bits");
  if (scaling.encode.rounding == Rounding::stochastic) wrong("got stochastic rounding");
  if (!scaling.rowwise) wrong("got a scaling without a rowwise copy");
  // The transpose has tiles of its own: its codes would be those of rounding to nearest.
  if (scaling.columnwise) wrong("got a columnwise copy, which GPTQ does not make");
  if (scaling.scale_order != ScaleOrder::row_major)
    wrong("got scales in ", name_of(scaling.scale_order), " order");
  if (scaling.hadamard.rowwise || scaling.hadamard.columnwise) wrong("got a Hadamard transform");
  if (scaling.axis != -1) wrong("got scales along axis ", scaling.axis);
  const bool follows =
      scaling.scale.format == ScaleFormat::e4m3_f32 || is_power_of_two_rule(scaling.scale.rule);
  if (is_peer(scaling.scale.arith) && !follows)
    wrong("got arith ", name_of(scaling.scale.arith), " with scales that are quotients");
}

TileRounding::TileRounding(const QuantizedTensor& quantized)
    : format_(quantized.scaling.format),
      encode_(quantized.scaling.encode),
      divides_(divides(quantized.scaling.scale)),
      adjust_(peer_adjust_of(quantized.scaling.scale, quantized.scaling.format)) {
  check_scaling_fits(quantized.scaling);
  const Tile& tile = quantized.scaling.tile;
  tile_rows_ = tile_extent(tile.rows, quantized.shape[0]);
  tile_cols_ = tile_extent(tile.cols, quantized.shape[1]);
  tiles_in_row_ = (quantized.shape[1] + tile_cols_ - 1) / tile_cols_;
  const QuantizedCopy& copy = quantized.rowwise;
  const float tensor_scale =
      copy.tensor_scale.owner() != nullptr ? copy.tensor_scale.span<float>()[0] : 1.0F;
  const std::int64_t tiles = element_count(copy.scales.shape());
  for (std::int64_t i = 0; i < tiles; ++i) {
    const TileScale scale =
        scale_of_bits(quantized.scaling.scale, bits_at(copy.scales, i), tensor_scale);
    scales_.push_back(scale.scale);
    factors_.push_back(scale.factor);
  }
  for (std::uint32_t code = 0; code < (1U << format_.bits()); ++code)
    values_[code] = static_cast<float>(decode(format_, code));
}

RoundedNumber TileRounding::round(std::int64_t row, std::int64_t col, float number) const {
  const auto tile = static_cast<std::size_t>(row / tile_rows_ * tiles_in_row_ + col / tile_cols_);
  const float u =
      peer_adjusted(adjust_, divides_ ? number / factors_[tile] : number * factors_[tile]);
  const float code = values_[encode_value(format_, static_cast<double>(u), encode_).code];
  return {code, scales_[tile] * code};
}

}  // namespace octavo::gptq_detail
