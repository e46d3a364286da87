// Alignment of addresses and row pitches, as vector accesses, TMA and cuBLASLt require it.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/tensor/view.h"

namespace octavo::cuda {

OCTAVO_HD inline bool is_aligned(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// Every row begins at a multiple of `bytes`. The pitch of a single row is ignored.
inline bool has_aligned_rows(const Matrix& matrix, std::int64_t bytes) {
  return is_aligned(matrix.data, static_cast<std::uintptr_t>(bytes)) &&
         (matrix.rows <= 1 || matrix.row_pitch % bytes == 0);
}
// The same including the pitch of a single row, for APIs that validate the pitch.
inline bool has_aligned_pitch(const Matrix& matrix, std::int64_t bytes) {
  return is_aligned(matrix.data, static_cast<std::uintptr_t>(bytes)) &&
         matrix.row_pitch % bytes == 0;
}

}  // namespace octavo::cuda
