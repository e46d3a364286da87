// MX operands brought to one exponent a row, or one for 128 columns: gemm_fold.cu has the kernels,
// gemm_mx.cc what is done with them.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Exponents of a row that are further apart than this are brought together by 128 columns instead.
// Eight: a code of e4m3 has binades from 2^8 to 2^-6, so that those of usual blocks stay normal, or
// lose bits that are 2^-17 of the row's largest number and less.
inline constexpr unsigned kSpreadOfRows = 8;

struct FoldJob {
  QuantizedMatrix from{};
  const unsigned char* tops = nullptr;  // of each row: its largest exponent
  const unsigned* spread = nullptr;     // of both operands
  unsigned char* codes = nullptr;
  std::int64_t code_pitch = 0;
  float* planes = nullptr;  // scales: of every row, or of every row of every 128 columns
  std::int64_t plane_pitch = 0;
  unsigned long long* changed = nullptr;
  bool vectors = false;  // codes can be read 16 at a time
};

// `spread` becomes the maximum of itself and the largest distance of exponents in a row.
void survey_exponents(const Exec& exec, const Matrix& scales, unsigned char* tops,
                      unsigned* spread);
void fold_codes(const Exec& exec, const FoldJob& job, bool is_e5m2);

}  // namespace octavo::cuda
