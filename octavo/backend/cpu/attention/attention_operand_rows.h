// Rows of Q, K or V in f32, from values or codes of any type, and the scales that are factored out
// of them.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// Scales that are factored out of rows and returned separately.
enum class FactoredScales : std::uint8_t {
  none,
  row,  // one scale per row: scale()
  // For V that is to be exact in bf16 (is_bf16_by_tile): one scale for all rows of a tile, scale(),
  // or one per channel, channel_scales(). Powers of two are not factored out.
  tile_or_channel,
};

// Rows of an operand in f32, rounded to the job's `values` type.
class AttentionRows {
 public:
  AttentionRows(const Isa& isa, const GemmOperand& operand, DType values, FactoredScales factored);

  [[nodiscard]] std::int64_t cols() const { return operand_.cols(); }
  // Writes a row to `stage`, which has room for kMaxHeadSize.
  void row(std::int64_t row, float* stage) const;
  [[nodiscard]] float scale(std::int64_t row) const;
  void scales(std::int64_t first, std::int64_t count, float* to) const;
  // cols() scales; returns false where they are in the rows.
  bool channel_scales(float* to) const;

 private:
  const Isa& isa_;
  GemmOperand operand_;
  bool rounds_to_bf16_ = false, factors_row_ = false, factors_channel_ = false;
  GemmOperandRows rows_;
};

// The bits of the largest magnitude; those of Inf or above where a value is not finite.
std::uint32_t amax_bits(const float* values, std::int64_t n);
bool is_finite_row(const float* values, std::int64_t n);

}  // namespace octavo::cpu
