// Values of any dtype as f32 (f64 sources are rounded) or as f64 (exact). 16-bit values are codes
// themselves, e5m10 and e8m7.
#pragma once

#include "octavo/backend/cpu/isa/portable/portable_lanes.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu::portable {
namespace {

// Elements converted at a time where a step needs a buffer: small enough to stay in L1.
constexpr std::int64_t kPiece = 1024;
// Copies: the linker would merge what is passed by reference with that of other folders.
constexpr Format kF16 = f16_format, kBf16 = bf16_format;

template <typename Wide>
void decode_wide(const Format& format, const void* codes, Wide* values, std::int64_t n) {
  if (format.code_bytes() == 1) {
    decode_lanes(format, static_cast<const std::uint8_t*>(codes), values, n);
  } else {
    decode_lanes(format, static_cast<const std::uint16_t*>(codes), values, n);
  }
}

template <typename From, typename To>
void cast_all(const From* __restrict from, To* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

template <typename Wide>
void widen(const void* values, DType source, Wide* wide, std::int64_t n) {
  switch (source) {
    case DType::f16:
      return decode_wide(kF16, values, wide, n);
    case DType::bf16:
      return decode_wide(kBf16, values, wide, n);
    case DType::f32:
      return cast_all(static_cast<const float*>(values), wide, n);
    case DType::f64:
      return cast_all(static_cast<const double*>(values), wide, n);
    case DType::code:
      break;
  }
}

// Rounds f64 values to f32 and back, in place.
inline void round_to_f32(double* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    values[i] = static_cast<double>(static_cast<float>(values[i]));
}

}  // namespace
}  // namespace octavo::cpu::portable
