// Which attention operands are exact in a narrow packed type (bf16, int8) once a scale common to
// rows, a tile or channels is factored out (FactoredScales in attention_operand_rows.h).
#pragma once

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {

inline bool has_one_scale_per_row(const GemmOperand& operand) {
  return tile_extent(operand.quantized.tile.cols, operand.cols()) == operand.cols();
}
inline bool has_one_scale_per_channel(const GemmOperand& operand) {
  const QuantizedMatrix& from = operand.quantized;
  return !has_one_scale_per_row(operand) && tile_extent(from.tile.cols, operand.cols()) == 1 &&
         tile_extent(from.tile.rows, operand.rows()) == operand.rows();
}

// Values, or codes whose scales are powers of two: exact without factoring. Packed elements are in
// units of the largest of a row or tile, so that no relevant one is subnormal.
inline bool is_bf16_as_it_is(const GemmOperand& operand, DType values) {
  if (!operand.is_quantized()) return values == DType::bf16 || operand.values.dtype == DType::bf16;
  const Matrix& scales = operand.quantized.scales;
  return fits_bf16(operand) && scales.dtype == DType::code && scales.format == e8m0fnu &&
         operand.quantized.tensor_scale == nullptr;
}

// Are rows of Q or K exact in bf16?
inline bool is_bf16_by_row(const GemmOperand& operand, DType values) {
  return is_bf16_as_it_is(operand, values) ||
         (operand.is_quantized() && fits_bf16(operand) && has_one_scale_per_row(operand));
}
// Is V exact in bf16, in tiles of `keys` keys?
inline bool is_bf16_by_tile(const GemmOperand& operand, DType values, std::int64_t keys) {
  if (is_bf16_as_it_is(operand, values)) return true;
  if (!operand.is_quantized() || !fits_bf16(operand)) return false;
  const std::int64_t height = tile_extent(operand.quantized.tile.rows, operand.rows());
  return has_one_scale_per_channel(operand) ||
         (has_one_scale_per_row(operand) && (height >= operand.rows() || height % keys == 0));
}

// Rows of Q or K whose codes are integers of a byte, so that lower limbs (attention_limbs.h) are
// zero.
inline bool is_integer_by_row(const GemmOperand& operand) {
  return operand.is_quantized() && operand.quantized.codes.format == mxint8 &&
         has_one_scale_per_row(operand);
}

}  // namespace octavo::cpu
