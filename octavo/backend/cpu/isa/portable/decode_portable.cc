// Codes to values through f32, or f64 for formats beyond the range of f32. The 16-bit targets are
// formats themselves, so the last step to them is an encode.
#include <algorithm>

#include "octavo/backend/cpu/isa/portable/portable.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"
#include "octavo/backend/cpu/isa/portable/portable_lanes.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu::portable {
namespace {

// e8m0fnu has no zero and so does not "fit" for encoding, but its values are all f32.
bool decodes_to_f32(const Format& format) {
  const int top = static_cast<int>(format.max_field() >> format.mantissa_bits) - format.bias;
  return format.min_exponent() >= (format.has_zero ? -126 : -127) && top <= 127;
}

template <typename Wide>
void decode_wide(const Format& format, const void* codes, Wide* values, std::int64_t n) {
  if (format.code_bytes() == 1) {
    decode_lanes(format, static_cast<const std::uint8_t*>(codes), values, n);
  } else {
    decode_lanes(format, static_cast<const std::uint16_t*>(codes), values, n);
  }
}

template <typename Wide>
void narrow(const Wide* wide, DType target, void* values, std::int64_t n) {
  if (target == DType::f32) {
    std::transform(wide, wide + n, static_cast<float*>(values),
                   [](Wide v) { return static_cast<float>(v); });
    return;
  }
  if (target == DType::f64) {
    std::transform(wide, wide + n, static_cast<double*>(values),
                   [](Wide v) { return static_cast<double>(v); });
    return;
  }
  const EncodePolicy policy{.overflow = Overflow::ieee, .nan_code = NanCode::signed_quiet};
  const Encoder encoder = make_encoder(target == DType::f16 ? f16_format : bf16_format, policy,
                                       std::is_same_v<Wide, float> ? DType::f32 : DType::f64);
  encode_span(encoder, wide, values, n, 0);
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

}  // namespace

void decode_span(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  const bool through_f32 = decodes_to_f32(decoder.format);
  if (decoder.target == DType::f32 && through_f32)
    return decode_wide(decoder.format, codes, static_cast<float*>(values), n);
  if (decoder.target == DType::f64)
    return decode_wide(decoder.format, codes, static_cast<double*>(values), n);
  return through_f32 ? decode_by_pieces<float>(decoder, codes, values, n)
                     : decode_by_pieces<double>(decoder, codes, values, n);
}

namespace {

template <typename Wide>
void widen_any(const void* values, DType source, Wide* wide, std::int64_t n) {
  switch (source) {
    case DType::f16:
      return decode_wide(f16_format, values, wide, n);
    case DType::bf16:
      return decode_wide(bf16_format, values, wide, n);
    case DType::f32:
      return narrow(static_cast<const float*>(values),
                    std::is_same_v<Wide, float> ? DType::f32 : DType::f64, wide, n);
    case DType::f64:
      return narrow(static_cast<const double*>(values),
                    std::is_same_v<Wide, float> ? DType::f32 : DType::f64, wide, n);
    case DType::code:
      break;
  }
}

}  // namespace

void widen(const void* values, DType source, float* wide, std::int64_t n) {
  widen_any(values, source, wide, n);
}
void widen(const void* values, DType source, double* wide, std::int64_t n) {
  widen_any(values, source, wide, n);
}

}  // namespace octavo::cpu::portable

namespace octavo::cpu {

const Isa kPortableIsa{.encode = [](const Encoder&) -> EncodeSpan { return portable::encode_span; },
                       .decode = [](const Decoder&) -> DecodeSpan { return portable::decode_span; },
                       .count = portable::count_span,
                       .rank = portable::rank_tiles,
                       .fp4_squares = portable::fp4_squares,
                       .row_error = portable::row_error};
const Kernels kPortableKernels =
    make_kernels<kPortableIsa, portable::gemm_method, portable::attention_method>(
        "cpu/portable", "plain C++, vectorised by the compiler");

}  // namespace octavo::cpu
