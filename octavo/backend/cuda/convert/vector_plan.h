// Whether a conversion can be vectorized (eight elements at a time), and its layout.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Rows of whole vectors at aligned addresses; a single row where memory is dense.
struct VectorPlan {
  std::int64_t rows = 0, vectors = 0;  // vectors: per row
  std::int64_t from_pitch = 0, to_pitch = 0;
  std::int64_t cols = 0;
  bool wide = false;  // whether two vectors of codes can be stored at once
};

// Bits of an element in memory.
int stored_bits_of(const Matrix& matrix);

// False if an address, a pitch or the number of columns does not allow it.
bool vector_plan(const Matrix& from, const Matrix& to, VectorPlan* plan);

// Of a scaled conversion: rows stay rows where they have factors of their own.
bool scaled_vector_plan(const Matrix& from, const Matrix& to, const Factors& factors,
                        VectorPlan* plan);

// The same for one matrix.
bool has_vectors(const Matrix& matrix);

}  // namespace octavo::cuda
