// MX exponent alignment kernels: block exponents of an operand aligned to one per row, or one per
// 128 columns. exponent_alignment.cu implements them; gemm_mx.cc and align_exponents.cc use them.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// How MX operands are multiplied. The device decides: a mode that loses too much raises it to the
// next one.
enum class AlignMode : unsigned { by_row, by_columns, as_they_are };

// Rows whose exponents are further apart than this are aligned by 128 columns instead. Eight: e4m3
// has binades from 2^8 to 2^-6, so codes of usual blocks stay normal, or lose bits that are at most
// 2^-17 of the row's largest value.
inline constexpr unsigned kSpreadOfRows = 8;

// Operands are multiplied unaligned (as_they_are) if, aligned by 128 columns, a block loses bits
// and its largest value becomes smaller than that of this code: 2^-4 in e4m3, 2^-12 in e5m2. Values
// that are rounded are then subnormal, where steps are 2^-9 or 2^-16, and off by at most half a
// step. So, whatever the other operand, no value is off by more than 2^-6 or 2^-5 of its block's
// largest, a quarter of what rounding to the format may have taken from that one.
//
// The largest value of a block, as quantizers make it, is in the top binade: 2^8 or 2^15. It falls
// below the limit where another block of the 128 columns is more than 12 (27) binades above. Blocks
// of random numbers are one or two binades apart, and one with an outlier of 2^6 is about eight
// above others.
constexpr unsigned least_largest_code(bool is_e5m2) { return is_e5m2 ? 0x0C : 0x18; }

// What alignment finds, over both operands; zero-initialized by the caller.
struct AlignFound {
  unsigned mode;                  // an AlignMode
  unsigned long long changed[2];  // elements whose value changed, aligned by row and by columns;
                                  // counted if AlignJob::changed is set
};

struct AlignJob {
  QuantizedMatrix from{};
  AlignFound* found = nullptr;     // null: no gate; both functions align unconditionally
  unsigned char* codes = nullptr;  // may be the source codes (in place)
  std::int64_t code_pitch = 0;
  float* planes = nullptr;  // scales: per row, or per row for every 128 columns
  std::int64_t plane_pitch = 0;
  // If set, changed elements are counted: here, or in found->changed.
  unsigned long long* changed = nullptr;
  bool vectors = false;  // codes can be loaded 16 at a time
  bool whole = true;     // and stored so: rows of the result are padded to multiples of 16
};

// Aligns to one exponent per row.
void align_by_row(const Exec& exec, const AlignJob& job);
// After both operands were aligned by row: aligns again by 128 columns, if the mode found is
// by_columns. Without `found` it aligns in any case.
void align_by_columns(const Exec& exec, const AlignJob& job);
// Adds to `changed` the elements that changed in the mode that was used.
void take_count(const Exec& exec, const AlignFound* found, unsigned long long* changed);

}  // namespace octavo::cuda
