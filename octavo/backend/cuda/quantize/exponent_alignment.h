// MX operands brought to one exponent a row, or one for 128 columns: exponent_alignment.cu has the
// kernels, gemm_mx.cc and fold.cc what is done with them.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// How MX operands come to be multiplied. The device decides: a way that loses too much of them
// makes it the next one.
enum class AlignMode : unsigned { by_row, by_columns, as_they_are };

// Exponents of a row that are further apart than this are brought together by 128 columns instead.
// Eight: a code of e4m3 has binades from 2^8 to 2^-6, so that those of usual blocks stay normal, or
// lose bits that are 2^-17 of the row's largest number and less.
inline constexpr unsigned kSpreadOfRows = 8;

// Operands stay as they are where, by 128 columns, a block loses bits and its largest number
// becomes smaller than this code's: 2^-4 in e4m3, 2^-12 in e5m2. What is rounded is subnormal then,
// where steps are 2^-9 or 2^-16, and off by half of one. So whatever stands beside it in a product,
// no number is off by more than 2^-6 or 2^-5 of its block's largest, a quarter of what rounding to
// the format may have taken from that one.
//
// The largest number of a block, as quantizers make it, is in the top binade: 2^8 or 2^15. It gets
// below where another block of the 128 columns is more than 12 (27) binades above. Blocks of random
// numbers are one or two apart, and one with an outlier of 2^6 is about eight above others.
constexpr unsigned least_largest_code(bool is_e5m2) { return is_e5m2 ? 0x0C : 0x18; }

// What folding finds out, of both operands; zeros before.
struct AlignFound {
  unsigned way;                   // a AlignMode
  unsigned long long changed[2];  // by row and by columns, elements that became other numbers,
                                  // where that is asked for
};

struct AlignJob {
  QuantizedMatrix from{};
  AlignFound* found = nullptr;     // null: nobody asks, and both ways do what they say
  unsigned char* codes = nullptr;  // may be where they come from
  std::int64_t code_pitch = 0;
  float* planes = nullptr;  // scales: of every row, or of every row of every 128 columns
  std::int64_t plane_pitch = 0;
  // Null, or grows by the elements that are changed: here, or in what is found.
  unsigned long long* changed = nullptr;
  bool vectors = false;  // codes can be read 16 at a time
  bool whole = true;     // and be written so: rows of the result are filled up to multiples of 16
};

// One exponent a row.
void align_by_row(const Exec& exec, const AlignJob& job);
// After both operands were folded by row: does so again by 128 columns, if that was found to be the
// way. Where nobody asks what was found, it does so in any case.
void align_by_columns(const Exec& exec, const AlignJob& job);
// `changed` grows by what was changed on the way that it came to be.
void take_count(const Exec& exec, const AlignFound* found, unsigned long long* changed);

}  // namespace octavo::cuda
