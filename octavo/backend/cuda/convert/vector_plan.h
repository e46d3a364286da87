// Can a conversion go eight elements at a time? Then how.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Rows of whole vectors at aligned addresses; one long row where memory is dense.
struct VectorPlan {
  std::int64_t rows = 0, vectors = 0;  // vectors: in a row
  std::int64_t from_pitch = 0, to_pitch = 0;
  std::int64_t cols = 0;
  bool wide = false;  // can two vectors of codes be written at once?
};

// Bits of an element as it lies in memory.
int stored_bits_of(const Matrix& matrix);

// False where an address, a pitch or a number of columns does not allow it.
bool vector_plan(const Matrix& from, const Matrix& to, VectorPlan* plan);

// For one side of it.
bool has_vectors(const Matrix& matrix);

}  // namespace octavo::cuda
