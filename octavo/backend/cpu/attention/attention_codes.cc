#include "octavo/backend/cpu/attention/attention_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/attention/key_factors.h"
#include "octavo/backend/cpu/attention/power_unit.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

// The codes of a padding row.
alignas(64) constexpr std::byte kZeros[kMaxHeadSize] = {};

constexpr float kMaxCode = 1.75F;  // 448 / 256
// Beyond these a product of a code and a scale, or its inverse, may not be finite.
constexpr float kMaxScale = 0x1p+100F;

bool takes_codes(const GemmOperand& operand) {
  if (!operand.is_quantized()) return false;
  const Matrix& codes = operand.quantized.codes;
  return codes.format == e4m3fn && codes.col_stride == 1 && codes.cols % 16 == 0 &&
         codes.cols > 0 && codes.cols <= kMaxHeadSize;
}

// The largest magnitude, or Inf where one is not finite or too large.
float largest_scale(const float* scales, std::int64_t n) {
  float most = 0.0F;
  bool fine = true;
  for (std::int64_t i = 0; i < n; ++i) {
    most = std::max(most, std::abs(scales[i]));
    fine &= std::abs(scales[i]) <= kMaxScale;
  }
  return fine ? most : HUGE_VALF;
}

// The power-of-two unit that brings packed elements to at most `max_packed`, for this largest scale
// of codes. kCodeFactor over it is finite.
float code_unit(float most_scale, float max_packed) {
  return power_of_two_at_least(most_scale * (kCodeFactor * kMaxCode / max_packed), -117);
}

// Elements that PanelKernels read in place.
bool is_plain(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  return operand.is_quantized() ? elements.format == e4m3fn && elements.col_stride == 1
                                : elements.dtype == DType::bf16 && elements.col_stride == 2;
}

}  // namespace

CodedRows::CodedRows(const Isa& isa, const AttentionMethod& method, const GemmOperand& operand)
    : operand_(operand),
      kernels_(takes_codes(operand) ? method.codes : nullptr),
      panels_(is_plain(operand) ? method.panels : nullptr),
      takes_key_factors_(method.takes_key_factors),
      step_(method.score.step_of_a()),
      scales_(isa, operand, DType::f32, FactoredScales::row) {
  if (panels_ != nullptr) {
    if (!operand.is_quantized()) source_ = PanelKernels::Source::bf16;
    by_row_ = !operand.is_quantized() || has_one_scale_per_row(operand);
    by_channel_ = !by_row_ && has_one_scale_per_channel(operand);
    return;
  }
  if (kernels_ == nullptr) return;
  const QuantizedMatrix& from = operand.quantized;
  by_row_ = tile_extent(from.tile.cols, from.codes.cols) == from.codes.cols;
  by_channel_ = !by_row_ && tile_extent(from.tile.cols, from.codes.cols) == 1 &&
                tile_extent(from.tile.rows, from.codes.rows) == from.codes.rows &&
                from.scales.dtype == DType::f32;
}

const std::byte* CodedRows::codes(std::int64_t row) const {
  return element(operand_.elements(), row, 0);
}

bool CodedRows::plain_panel(RowsOf of, const std::int64_t* rows, int count, float factor,
                            std::byte* to, float* units) const {
  const std::byte* from[kMaxPanelRows];
  for (int r = 0; r < count; ++r) {
    units[r] = 0.0F;
    from[r] = nullptr;
    if (rows[r] < 0) continue;
    scales_.scales(rows[r], 1, units + r);
    units[r] *= factor;
    if (!is_finite_row(units + r, 1)) return false;
    from[r] = codes(rows[r]);
  }
  const PanelKernels::Rows all{.source = source_,
                               .rows = from,
                               .count = count,
                               .n = operand_.cols(),
                               .padded = round_up(operand_.cols(), step_),
                               .panel = to};
  return of == RowsOf::keys ? panels_->keys(all) : panels_->queries(all);
}

bool CodedRows::plain_values(const TileLayout& layout, std::int64_t tile_keys, std::int64_t first,
                             std::int64_t count, std::byte* memory) const {
  float scales[kMaxTileKeys];
  std::fill_n(scales, count, 1.0F);  // those of channels are not part of it
  if (by_row_) scales_.scales(first, count, scales);
  KeyFactors factors(scales, count, tile_keys);
  if (factors.differ && !takes_key_factors_) return false;
  if (!is_finite_row(scales, count)) return false;
  if (!panels_->values({.source = source_,
                        .rows = codes(first),
                        .pitch = operand_.elements().row_pitch,
                        .keys = count,
                        .tile_keys = tile_keys,
                        .n = layout.width,
                        .padded = layout.padded_width,
                        .exponents = factors.differ ? factors.exponents : nullptr,
                        .panel = layout.value_panel,
                        .to = memory + layout.values_at}))
    return false;
  set_values(layout, memory, factors, factors.differ ? factors.power : scales[0], false);
  return true;
}

bool CodedRows::panel(RowsOf of, const std::int64_t* rows, int count, float factor, std::byte* to,
                      float* unit) const {
  if (panels_ != nullptr) return plain_panel(of, rows, count, factor, to, unit);
  float scales[kMaxPanelRows];
  const std::byte* from[kMaxPanelRows];
  for (int r = 0; r < count; ++r) {
    scales[r] = 0.0F;
    from[r] = kZeros;
    if (rows[r] < 0) continue;
    scales_.scales(rows[r], 1, scales + r);
    scales[r] *= factor;
    from[r] = codes(rows[r]);
  }
  const float most = largest_scale(scales, count);
  if (!std::isfinite(most)) return false;
  *unit = code_unit(most, kMaxPackedScore);
  for (int r = 0; r < count; ++r) scales[r] *= kCodeFactor / *unit;
  return kernels_->interleave(from, scales, count, operand_.cols(),
                              reinterpret_cast<std::uint16_t*>(to));
}

bool CodedRows::values(const TileLayout& layout, std::int64_t tile_keys, std::int64_t first,
                       std::int64_t count, std::byte* memory) const {
  if (panels_ != nullptr) return plain_values(layout, tile_keys, first, count, memory);
  alignas(64) float scales[std::max(kMaxHeadSize, kMaxTileKeys)];
  const std::int64_t n = by_row_ ? count : layout.width;
  if (by_row_) {
    scales_.scales(first, count, scales);
  } else {
    const QuantizedMatrix& from = operand_.quantized;
    const float level = from.tensor_scale != nullptr ? *from.tensor_scale : 1.0F;
    for (std::int64_t e = 0; e < n; ++e) {
      std::memcpy(scales + e, element(from.scales, 0, e), sizeof(float));
      scales[e] *= level;
    }
  }
  const float most = largest_scale(scales, n);
  if (!std::isfinite(most)) return false;
  const float unit = code_unit(most, kMaxPackedValue);
  for (std::int64_t i = 0; i < n; ++i) scales[i] *= kCodeFactor / unit;
  std::byte* const to = memory + layout.values_at;
  if (!kernels_->spread({.rows = codes(first),
                         .pitch = operand_.quantized.codes.row_pitch,
                         .keys = count,
                         .size = layout.width,
                         .row_factors = by_row_ ? scales : nullptr,
                         .channel_factors = by_row_ ? nullptr : scales,
                         .panel = layout.value_panel,
                         .to = to}))
    return false;
  // Padding keys of the tile.
  const std::int64_t key_bytes = layout.value_panel / tile_keys;
  if (count < tile_keys)
    for (std::int64_t at = 0; at < layout.width / 8 * layout.value_panel; at += layout.value_panel)
      std::memset(to + at + count * key_bytes, 0,
                  static_cast<std::size_t>((tile_keys - count) * key_bytes));
  set_values(layout, memory, KeyFactors(nullptr, 0, 0), unit, false);
  return true;
}

double CodedRows::largest_row_squares(std::int64_t first, std::int64_t last) const {
  double most = 0.0;
  for (std::int64_t row = first; row < last; ++row) {
    float scale = 0.0F;
    scales_.scales(row, 1, &scale);
    const double size = static_cast<double>(scale) * static_cast<double>(kCodeFactor);
    const double squares =
        static_cast<double>(kernels_->row_squares(codes(row), operand_.cols())) * size * size;
    if (std::isfinite(squares)) most = std::max(most, squares);
  }
  return most;
}

}  // namespace octavo::cpu
