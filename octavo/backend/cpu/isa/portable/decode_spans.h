// Codes to values through f32, or f64 for formats beyond the range of f32. The 16-bit targets are
// formats themselves, so the last step to them is an encode.
#pragma once

#include <algorithm>
#include <type_traits>

#include "octavo/backend/cpu/isa/portable/encode_spans.h"
#include "octavo/backend/cpu/isa/portable/wide_values.h"

namespace octavo::cpu::portable {
namespace {

// e8m0fnu has no zero and so does not "fit" for encoding, but its values are all f32.
inline bool decodes_to_f32(const Format& format) {
  const int top = static_cast<int>(format.max_field() >> format.mantissa_bits) - format.bias;
  return format.min_exponent() >= (format.has_zero ? -126 : -127) && top <= 127;
}

template <typename Wide>
void narrow(const Wide* wide, DType target, void* values, std::int64_t n) {
  if (target == DType::f32) return cast_all(wide, static_cast<float*>(values), n);
  if (target == DType::f64) return cast_all(wide, static_cast<double*>(values), n);
  const EncodePolicy policy{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  const Encoder encoder = make_encoder(target == DType::f16 ? kF16 : kBf16, policy,
                                       std::is_same_v<Wide, float> ? DType::f32 : DType::f64);
  encode_any(encoder, wide, values, n, 0);
}

template <typename Wide>
void decode_by_pieces(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  const int code_bytes = decoder.format.code_bytes(), value_bytes = element_bytes(decoder.target);
  alignas(64) Wide wide[kPiece];
  for (std::int64_t start = 0; start < n; start += kPiece) {
    const std::int64_t count = std::min(kPiece, n - start);
    decode_wide(decoder.format, static_cast<const std::byte*>(codes) + start * code_bytes, wide,
                count);
    narrow(wide, decoder.target, static_cast<std::byte*>(values) + start * value_bytes, count);
  }
}

inline void decode_any(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  const bool through_f32 = decodes_to_f32(decoder.format);
  if (decoder.target == DType::f32 && through_f32)
    return decode_wide(decoder.format, codes, static_cast<float*>(values), n);
  if (decoder.target == DType::f64)
    return decode_wide(decoder.format, codes, static_cast<double*>(values), n);
  return through_f32 ? decode_by_pieces<float>(decoder, codes, values, n)
                     : decode_by_pieces<double>(decoder, codes, values, n);
}

}  // namespace
}  // namespace octavo::cpu::portable
