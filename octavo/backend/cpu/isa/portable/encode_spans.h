// Chooses the lane width of an encode and feeds it: 16-bit sources are themselves codes (e5m10 and
// e8m7), so they are decoded to f32 first, a cache-sized piece at a time.
#pragma once

#include "octavo/backend/cpu/isa/portable/portable_lanes.h"
#include "octavo/backend/cpu/isa/portable/wide_values.h"

namespace octavo::cpu::portable {
namespace {

template <typename Wide, typename Code>
void encode_wide(const Encoder& encoder, const Wide* values, Code* codes, std::int64_t n,
                 std::uint64_t index) {
  switch (encoder.policy.rounding) {
    case Rounding::nearest_even:
      return encode_lanes<Wide, Code, Rounding::nearest_even>(encoder, values, codes, n, index);
    case Rounding::nearest_away:
      return encode_lanes<Wide, Code, Rounding::nearest_away>(encoder, values, codes, n, index);
    case Rounding::toward_zero:
      return encode_lanes<Wide, Code, Rounding::toward_zero>(encoder, values, codes, n, index);
    case Rounding::up:
      return encode_lanes<Wide, Code, Rounding::up>(encoder, values, codes, n, index);
    case Rounding::down:
      return encode_lanes<Wide, Code, Rounding::down>(encoder, values, codes, n, index);
    case Rounding::to_odd:
      return encode_lanes<Wide, Code, Rounding::to_odd>(encoder, values, codes, n, index);
    case Rounding::stochastic:
      return encode_lanes<Wide, Code, Rounding::stochastic>(encoder, values, codes, n, index);
  }
}

template <typename Code>
void encode_from(const Encoder& encoder, const void* values, Code* codes, std::int64_t n,
                 std::uint64_t index) {
  const bool narrow = fits_f32(encoder.format);
  if (encoder.source == DType::f32 && narrow) {
    return encode_wide(encoder, static_cast<const float*>(values), codes, n, index);
  }
  if (encoder.source == DType::f64 && !encoder.policy.via_f32) {
    return encode_wide(encoder, static_cast<const double*>(values), codes, n, index);
  }
  const int source_bytes = element_bytes(encoder.source);
  for (std::int64_t start = 0; start < n; start += kPiece) {
    const std::int64_t count = n - start < kPiece ? n - start : kPiece;
    const auto* from = static_cast<const std::byte*>(values) + start * source_bytes;
    const std::uint64_t at = index + static_cast<std::uint64_t>(start);
    if (narrow) {
      alignas(64) float wide[kPiece];
      widen(from, encoder.source, wide, count);
      encode_wide(encoder, wide, codes + start, count, at);
    } else {
      alignas(64) double wide[kPiece];
      widen(from, encoder.source, wide, count);
      if (encoder.policy.via_f32) round_to_f32(wide, count);
      encode_wide(encoder, wide, codes + start, count, at);
    }
  }
}

inline void encode_any(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                       std::uint64_t index) {
  if (encoder.format.code_bytes() == 1) {
    encode_from(encoder, values, static_cast<std::uint8_t*>(codes), n, index);
  } else {
    encode_from(encoder, values, static_cast<std::uint16_t*>(codes), n, index);
  }
}

}  // namespace
}  // namespace octavo::cpu::portable
