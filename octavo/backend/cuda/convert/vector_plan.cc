#include "octavo/backend/cuda/convert/vector_plan.h"

#include "octavo/backend/cuda/runtime/alignment.h"

namespace octavo::cuda {

int stored_bits_of(const Matrix& matrix) {
  if (matrix.dtype == DType::code && matrix.packed) return matrix.format.bits();
  return 8 * element_bytes(matrix.dtype, matrix.format);
}

bool has_vectors(const Matrix& matrix) {
  const int bits = stored_bits_of(matrix);
  // A vector of eight elements has `bits` bytes, read in the largest words that divide it.
  const int align = bits >= 16 ? 16 : bits == 8 ? 8 : bits == 4 ? 4 : bits == 6 ? 2 : 1;
  if (bits > 32 || matrix.cols % 8 != 0) return false;
  if (!matrix.packed && matrix.col_stride != bits / 8) return false;
  return has_aligned_rows(matrix, align);
}

bool vector_plan(const Matrix& from, const Matrix& to, VectorPlan* plan) {
  if (!has_vectors(from) || !has_vectors(to)) return false;
  const std::int64_t from_bytes = from.cols / 8 * stored_bits_of(from),
                     to_bytes = to.cols / 8 * stored_bits_of(to);
  const bool dense = from.rows == 1 || (from.row_pitch == from_bytes && to.row_pitch == to_bytes);
  *plan = {.rows = dense ? 1 : from.rows,
           .vectors = dense ? from.rows * (from.cols / 8) : from.cols / 8,
           .from_pitch = from.row_pitch,
           .to_pitch = to.row_pitch,
           .cols = from.cols,
           .wide = is_aligned(to.data, 16) && (dense || to.row_pitch % 16 == 0)};
  return true;
}

bool scaled_vector_plan(const Matrix& from, const Matrix& to, const Factors& factors,
                        VectorPlan* plan) {
  if (!vector_plan(from, to, plan)) return false;
  if (factors.is_array()) {
    plan->rows = from.rows;
    plan->vectors = from.cols / 8;
  }
  return true;
}

}  // namespace octavo::cuda
