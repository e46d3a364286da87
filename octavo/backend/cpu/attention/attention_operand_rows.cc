#include "octavo/backend/cpu/attention/attention_operand_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/round/encode_edges.h"

namespace octavo::cpu {
namespace {

constexpr GemmMethod kWide{.packed_type = PackedType::f32};

bool is_row_scaled(const GemmOperand& operand) {
  return operand.is_quantized() && fits_f32(operand.quantized.codes.format) &&
         has_one_scale_per_row(operand);
}
bool is_channel_scaled(const GemmOperand& operand) {
  return operand.is_quantized() && fits_f32(operand.quantized.codes.format) &&
         has_one_scale_per_channel(operand);
}

// To nearest even; non-finite values stay non-finite.
void round_to_bf16(float* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    values[i] = std::bit_cast<float>(is_nan ? bits | 0x00400000u : rounded);
  }
}

}  // namespace

std::uint32_t amax_bits(const float* values, std::int64_t n) {
  std::uint32_t amax = 0;
  for (std::int64_t i = 0; i < n; ++i)
    amax = std::max(amax, std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFu);
  return amax;
}

AttentionRows::AttentionRows(const Isa& isa, const GemmOperand& operand, DType values,
                             FactoredScales factored)
    : isa_(isa),
      operand_(operand),
      rounds_to_bf16_(!operand.is_quantized() && values == DType::bf16 &&
                      operand.values.dtype != DType::bf16),
      factors_row_(is_row_scaled(operand) && (factored == FactoredScales::row ||
                                              (factored == FactoredScales::tile_or_channel &&
                                               !is_bf16_as_it_is(operand, values)))),
      factors_channel_(factored == FactoredScales::tile_or_channel && is_channel_scaled(operand)),
      rows_(isa, operand_, kWide,
            factors_row_ || factors_channel_ ? AppliedScales::none : AppliedScales::all) {}

void AttentionRows::row(std::int64_t row, float* stage) const {
  auto* bytes = reinterpret_cast<std::byte*>(stage);
  const std::byte* there = rows_.piece(row, 0, cols(), bytes);
  if (there != bytes) std::memcpy(bytes, there, static_cast<std::size_t>(cols()) * sizeof(float));
  if (rounds_to_bf16_) round_to_bf16(stage, cols());
}

float AttentionRows::scale(std::int64_t row) const {
  if (!factors_row_) return 1.0F;
  float scale = 1.0F;
  rows_.scales(row, 0, cols(), 1, &scale, 1);
  return scale;
}

void AttentionRows::scales(std::int64_t first, std::int64_t count, float* to) const {
  const QuantizedMatrix& from = operand_.quantized;
  if (!factors_row_) {
    std::fill_n(to, count, 1.0F);
    return;
  }
  if (from.scales.dtype != DType::f32) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = scale(first + i);
    return;
  }
  const std::int64_t height = tile_extent(from.tile.rows, from.codes.rows);
  const float level = from.tensor_scale != nullptr ? *from.tensor_scale : 1.0F;
  if (height == 1 && from.scales.row_pitch == sizeof(float)) {
    std::memcpy(to, element(from.scales, first, 0),
                static_cast<std::size_t>(count) * sizeof(float));
    for (std::int64_t i = 0; i < count; ++i) to[i] *= level;
    return;
  }
  std::int64_t left = height - first % height;
  const std::byte* at = element(from.scales, first / height, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i, at, sizeof(float));
    to[i] *= level;
    if (--left > 0) continue;
    left = height;
    at += from.scales.row_pitch;
  }
}

bool AttentionRows::channel_scales(float* to) const {
  if (!factors_channel_) return false;
  const QuantizedMatrix& from = operand_.quantized;
  load_scales(isa_, from.scales, 0, 0, cols(), to);
  const float level = from.tensor_scale != nullptr ? *from.tensor_scale : 1.0F;
  for (std::int64_t e = 0; e < cols(); ++e) to[e] *= level;
  return true;
}

bool is_finite_row(const float* values, std::int64_t n) {
  return amax_bits(values, n) < 0x7F800000u;
}

}  // namespace octavo::cpu
