// MX operands brought to one exponent a row, or one for 128 columns: gemm_fold.cu has the kernels,
// gemm_mx.cc and fold.cc what is done with them.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Exponents of a row that are further apart than this are brought together by 128 columns instead.
// Eight: a code of e4m3 has binades from 2^8 to 2^-6, so that those of usual blocks stay normal, or
// lose bits that are 2^-17 of the row's largest number and less.
inline constexpr unsigned kSpreadOfRows = 8;

// What folding by row finds out, of both operands; zeros before.
struct FoldFound {
  unsigned spread;             // the largest distance of exponents in a row
  unsigned long long changed;  // elements that are other numbers now, where that is asked for
};

struct FoldJob {
  QuantizedMatrix from{};
  FoldFound* found = nullptr;      // null: nobody asks, and both ways do what they say
  unsigned char* codes = nullptr;  // may be where they come from
  std::int64_t code_pitch = 0;
  float* planes = nullptr;  // scales: of every row, or of every row of every 128 columns
  std::int64_t plane_pitch = 0;
  unsigned long long* changed = nullptr;  // grows by the elements that are changed; or null
  bool vectors = false;                   // codes can be read 16 at a time
  bool whole = true;  // and be written so: rows of the result are filled up to multiples of 16
};

// One exponent a row.
void fold_by_row(const Exec& exec, const FoldJob& job);
// After both operands were folded by row: does so again by 128 columns, if exponents of a row are
// too far apart. Where nothing was found before, it does so in any case.
void fold_by_columns(const Exec& exec, const FoldJob& job);
// `changed` grows by what folding by row changed, if that is how it stays.
void take_count(const Exec& exec, const FoldFound* found, unsigned long long* changed);

}  // namespace octavo::cuda
