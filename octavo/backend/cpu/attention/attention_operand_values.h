// Rows of an operand as f64 or f32 numbers, for preparation and statistics of Q, K and V: values
// exactly, and codes times scales within f32's rounding.
#pragma once

#include <algorithm>
#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"
#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {

class AttentionOperandValues {
 public:
  static constexpr std::int64_t kMax = 1024;  // numbers at a time

  AttentionOperandValues(const Isa& isa, const GemmOperand& operand)
      : operand_(operand),
        rows_(isa, operand_, kWide, AppliedScales::all),
        are_f32_(!operand.is_quantized() && operand.values.dtype == DType::f32 &&
                 is_contiguous(operand.values)) {}
  AttentionOperandValues(const AttentionOperandValues&) = delete;
  AttentionOperandValues& operator=(const AttentionOperandValues&) = delete;

  // n numbers of a row, from `col` on, a multiple of 8.
  template <typename T>
  void piece(std::int64_t row, std::int64_t col, std::int64_t n, T* to) const {
    if (are_f32_) {  // what a row costs to look at counts where rows are short
      const auto* from = reinterpret_cast<const float*>(element(operand_.values, row, col));
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
      return;
    }
    if (!operand_.is_quantized() && operand_.values.dtype == DType::f64) {
      alignas(64) std::byte gathered[kMax * 8];
      const auto* from = static_cast<const double*>(gather(operand_.values, row, col, n, gathered));
      for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
      return;
    }
    alignas(64) std::byte stage[kMax * 4];
    const auto* from = reinterpret_cast<const float*>(rows_.piece(row, col, n, stage));
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }

 private:
  static constexpr GemmMethod kWide{.packed_type = PackedType::f32};
  GemmOperand operand_;
  GemmOperandRows rows_;
  bool are_f32_;
};

}  // namespace octavo::cpu
