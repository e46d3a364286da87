// Rows of Q, K or V in f32, whatever they are in memory, and the scales that may be left out of
// them.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// Scales that are left out of rows, and given apart.
enum class FactoredScales : std::uint8_t {
  none,
  row,  // where one serves a whole row: scale()
  // Of values that are to be exact in bf16 (is_bf16_by_tile): where one serves all rows of a tile,
  // scale(), or a whole channel, channel_scales(). Powers of two stay where they are.
  tile_or_channel,
};

// Rows of an operand in f32, as the job takes them.
class AttentionRows {
 public:
  AttentionRows(const Isa& isa, const GemmOperand& operand, DType values, FactoredScales factored);

  [[nodiscard]] std::int64_t cols() const { return operand_.cols(); }
  // `stage` has room for kMostHeadSize, and is where they are then.
  void row(std::int64_t row, float* stage) const;
  [[nodiscard]] float scale(std::int64_t row) const;
  void scales(std::int64_t first, std::int64_t count, float* to) const;
  // cols() of them; false: they are in the rows.
  bool channel_scales(float* to) const;

 private:
  const Isa& isa_;
  GemmOperand operand_;
  bool rounds_to_bf16_ = false, factors_row_ = false, factors_channel_ = false;
  GemmOperandRows rows_;
};

// The largest magnitude of some numbers, as its bits; those of Inf or above where one is not
// finite.
std::uint32_t amax_bits(const float* values, std::int64_t n);
bool is_finite_row(const float* values, std::int64_t n);

}  // namespace octavo::cpu
