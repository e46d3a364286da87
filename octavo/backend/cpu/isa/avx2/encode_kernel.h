// The x86 encoder over f32 lanes (Avx2Lanes, Avx512Lanes): one algorithm for every signed format of
// up to eight bits with a mantissa.
//
// With t the power of two at or below |x| (not below the smallest normal number) and m = t *
// 2^(23-M), the sum |x| + m has the format's spacing as its last place: the adder rounds, in the
// direction that MXCSR has, for normal and subnormal results alike. Then
//   field = bits(|x| + m) - bits(m) + ((t - t_min) >> (23 - M)).
// Overflow is a clamp of |x| to a grid point beforehand (round/encode_edges.h). Rounding modes are
// those of the NEON encoder (isa/neon/encode_kernel.h); stochastic rounding and f64 sources are the
// portable kernel's. Eleven operations a vector for nearest_even. No branch or address depends on
// data.
#pragma once

#include <bit>
#include <cstring>

#include "octavo/backend/cpu/isa.h"
#include "octavo/base/fp_env.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

constexpr std::uint32_t kF32Inf = 0x7F800000u, kF32Magnitude = 0x7FFFFFFFu;

// Can f32 lanes encode the format? Two bits beyond the format's own must be left, the magic number
// must not overflow, and half a step must be a normal number.
inline bool lanes_fit(const Encoder& encoder) {
  const Format& format = encoder.format;
  const int mantissa = format.mantissa_bits;
  if (format.bits() > 8 || mantissa == 0 || !format.is_signed || encoder.policy.via_f32 ||
      encoder.policy.rounding == Rounding::stochastic || encoder.source == DType::f64)
    return false;
  const int top =
      static_cast<int>((limit_field(format, true) + 1) >> mantissa) - 1 + format.min_exponent();
  return top + 23 - mantissa <= 127 && format.min_exponent() - mantissa - 1 >= -126;
}

constexpr FpRounding adder_mode(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return FpRounding::nearest;
    case Rounding::up:
      return FpRounding::up;
    case Rounding::down:
      return FpRounding::down;
    default:
      return FpRounding::zero;
  }
}

// Which special cases after rounding a call has.
enum class SpecialCases {
  none,     // both signs alike, no NaN among the values that matter
  nan,      // both signs alike, Inf is just another overflow
  general,  // anything
};

inline SpecialCases special_cases(const Encoder& encoder) {
  const Format& format = encoder.format;
  const std::uint32_t sign = format.sign_mask(), field = encoder.overflow_field[0];
  const bool alike = format.has_negative_zero() && encoder.overflow_field[1] == field &&
                     encoder.inf_code[0] == field && encoder.inf_code[1] == (field | sign);
  const bool nan_keeps = encoder.nan_code[1] == (encoder.nan_code[0] | sign);
  const bool nan_drops =
      encoder.nan_code[1] == encoder.nan_code[0] && (encoder.nan_code[0] & sign) == 0;
  if (!alike || !(nan_keeps || nan_drops)) return SpecialCases::general;
  return encoder.only_finite ? SpecialCases::none : SpecialCases::nan;
}

template <typename L>
struct EncodeConstants {
  using Bits = typename L::Bits;

  Bits limit[2], smallest, magic, half_step;
  Bits sign_code, zero_sign, negate, nan_field, nan_sign, inf_code[2], nan_code[2];
  int down, sign_shift;

  explicit EncodeConstants(const Encoder& encoder) {
    const Format& format = encoder.format;
    const int mantissa = format.mantissa_bits;
    const auto exponents = [](int n) { return L::splat(static_cast<std::uint32_t>(n) << 23); };
    for (std::size_t s = 0; s < 2; ++s) {
      limit[s] = L::splat(std::bit_cast<std::uint32_t>(
          static_cast<float>(grid_value(format, encoder.overflow_field[s]))));
      inf_code[s] = L::splat(encoder.inf_code[s]);
      nan_code[s] = L::splat(encoder.nan_code[s]);
    }
    smallest = exponents(format.min_exponent() + 127);
    magic = exponents(23 - mantissa);
    half_step = exponents(mantissa + 1);
    down = 23 - mantissa;
    sign_shift = 32 - format.bits();
    sign_code = L::splat(format.twos_complement ? 0 : format.sign_mask());
    zero_sign = L::splat(format.has_negative_zero() ? format.sign_mask() : 0);
    negate = L::splat(format.twos_complement ? 0xFFFFFFFFu : 0);
    nan_field = L::splat(encoder.nan_code[0] & format.magnitude_mask());
    nan_sign = L::splat(encoder.nan_code[0] == encoder.nan_code[1] ? 0 : format.sign_mask());
  }
};

// The code of each lane, in its low byte.
template <typename L, Rounding kRounding, SpecialCases kCases>
[[gnu::always_inline]] inline typename L::Bits encode_lanes(const EncodeConstants<L>& k,
                                                            typename L::Bits raw) {
  using Bits = typename L::Bits;
  constexpr bool kGeneral = kCases == SpecialCases::general;
  constexpr bool kSigned = kRounding == Rounding::up || kRounding == Rounding::down;
  const Bits magnitude = L::band(raw, L::splat(kF32Magnitude));
  Bits limit = k.limit[0];
  if constexpr (kGeneral) limit = L::select(L::negative(raw), k.limit[1], k.limit[0]);
  Bits lane = L::min(magnitude, limit);
  const Bits power = L::max(L::band(lane, L::splat(kF32Inf)), k.smallest);
  Bits big = L::add(power, k.magic);
  if constexpr (kRounding == Rounding::nearest_away)
    lane = L::fadd(lane, L::sub(power, k.half_step));
  if constexpr (kSigned) {
    const Bits sign = L::bxor(raw, magnitude);
    lane = L::bor(lane, sign);
    big = L::bor(big, sign);
  }
  Bits sum = L::fadd(lane, big);
  if constexpr (kRounding == Rounding::to_odd) {
    const Bits odd = L::bor(sum, L::splat(1));
    sum = L::select(L::fequal(L::fsub(sum, big), lane), sum, odd);
  }
  const Bits field = L::add(L::sub(sum, big), L::shift_right(L::sub(power, k.smallest), k.down));
  if constexpr (!kGeneral) {
    const Bits sign = L::band(L::shift_right(raw, k.sign_shift), k.sign_code);
    const Bits code = L::bor(field, sign);
    if constexpr (kCases == SpecialCases::none) return code;
    return L::select(L::above(magnitude, L::splat(kF32Inf)),
                     L::bor(k.nan_field, L::band(sign, k.nan_sign)), code);
  } else {
    const auto negative = L::negative(raw);
    const Bits sign =
        L::keep(negative, L::select(L::equal(field, L::splat(0)), k.zero_sign, k.sign_code));
    const Bits flip = L::keep(negative, k.negate);
    Bits code = L::band(L::sub(L::bxor(L::bor(field, sign), flip), flip), L::splat(0xFF));
    code = L::select(L::equal(magnitude, L::splat(kF32Inf)),
                     L::select(negative, k.inf_code[1], k.inf_code[0]), code);
    return L::select(L::above(magnitude, L::splat(kF32Inf)),
                     L::select(negative, k.nan_code[1], k.nan_code[0]), code);
  }
}

template <typename L, DType kSource, Rounding kRounding, SpecialCases kCases>
void encode_span(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                 std::uint64_t) {
  constexpr std::int64_t kBytes = element_bytes(kSource);
  const FpEnvGuard guard(adder_mode(kRounding));
  const EncodeConstants<L> k(encoder);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::uint8_t*>(codes);
  const auto group = [&](const std::byte* in, std::uint8_t* out) __attribute__((always_inline)) {
    typename L::Bits v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      v[i] = encode_lanes<L, kRounding, kCases>(
          k, L::template load<kSource>(in + i * L::kLanes * kBytes));
    L::store_bytes(v, out);
  };
  std::int64_t done = 0;
  for (; done + L::kGroup <= n; done += L::kGroup) group(from + done * kBytes, to + done);
  if (done < n) {
    alignas(64) std::byte staged[L::kGroup * kBytes] = {};
    alignas(64) std::uint8_t out[L::kGroup];
    std::memcpy(staged, from + done * kBytes, static_cast<std::size_t>((n - done) * kBytes));
    group(staged, out);
    std::memcpy(to + done, out, static_cast<std::size_t>(n - done));
  }
}

template <typename L, DType kSource, Rounding kRounding>
EncodeSpan choose_cases(const Encoder& encoder) {
  return special_cases(encoder) == SpecialCases::general
             ? encode_span<L, kSource, kRounding, SpecialCases::general>
             : encode_span<L, kSource, kRounding, SpecialCases::nan>;
}

template <typename L, DType kSource>
EncodeSpan choose_rounding(const Encoder& encoder) {
  switch (encoder.policy.rounding) {
    case Rounding::nearest_even:
      return choose_cases<L, kSource, Rounding::nearest_even>(encoder);
    case Rounding::nearest_away:
      return choose_cases<L, kSource, Rounding::nearest_away>(encoder);
    case Rounding::toward_zero:
      return choose_cases<L, kSource, Rounding::toward_zero>(encoder);
    case Rounding::up:
      return choose_cases<L, kSource, Rounding::up>(encoder);
    case Rounding::down:
      return choose_cases<L, kSource, Rounding::down>(encoder);
    case Rounding::to_odd:
      return choose_cases<L, kSource, Rounding::to_odd>(encoder);
    case Rounding::stochastic:
      break;
  }
  return nullptr;
}

// Null where lanes cannot encode the format, or not under this policy.
template <typename L>
EncodeSpan choose_encode(const Encoder& encoder) {
  if (!lanes_fit(encoder)) return nullptr;
  switch (encoder.source) {
    case DType::f32:
      return choose_rounding<L, DType::f32>(encoder);
    case DType::f16:
      return choose_rounding<L, DType::f16>(encoder);
    case DType::bf16:
      return choose_rounding<L, DType::bf16>(encoder);
    default:
      return nullptr;
  }
}

// Values times the factor of their tile, to nearest even: a vector never spans two tiles, because
// widths are multiples of sixteen.
template <typename L, DType kSource, SpecialCases kCases>
void encode_scaled_span(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                        const float* factors, const std::uint8_t* poisoned, std::int64_t width) {
  constexpr std::int64_t kBytes = element_bytes(kSource);
  const FpEnvGuard guard;
  const EncodeConstants<L> k(encoder);
  const auto poison = L::splat(encoder.poison_code);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::uint8_t*>(codes);
  const auto group = [&](const std::byte* in, std::int64_t at, std::uint8_t* out)
      __attribute__((always_inline)) {
    typename L::Bits v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      // The last vectors of a staged group may lie beyond the end: any factor will do for them.
      const std::int64_t first = at + i * L::kLanes, tile = (first < n ? first : n - 1) / width;
      const auto factor = L::splat(std::bit_cast<std::uint32_t>(factors[tile]));
      const auto scaled = L::fmul(L::template load<kSource>(in + i * L::kLanes * kBytes), factor);
      const auto is_poisoned = L::equal(L::splat(poisoned[tile]), L::splat(0xFF));
      v[i] = L::select(is_poisoned, poison,
                       encode_lanes<L, Rounding::nearest_even, kCases>(k, scaled));
    }
    L::store_bytes(v, out);
  };
  std::int64_t done = 0;
  for (; done + L::kGroup <= n; done += L::kGroup) group(from + done * kBytes, done, to + done);
  if (done < n) {
    alignas(64) std::byte staged[L::kGroup * kBytes] = {};
    alignas(64) std::uint8_t out[L::kGroup];
    std::memcpy(staged, from + done * kBytes, static_cast<std::size_t>((n - done) * kBytes));
    group(staged, done, out);
    std::memcpy(to + done, out, static_cast<std::size_t>(n - done));
  }
}

template <typename L, DType kSource>
ScaledSpan choose_scaled_cases(const Encoder& encoder) {
  switch (special_cases(encoder)) {
    case SpecialCases::none:
      return encode_scaled_span<L, kSource, SpecialCases::none>;
    case SpecialCases::nan:
      return encode_scaled_span<L, kSource, SpecialCases::nan>;
    case SpecialCases::general:
      return encode_scaled_span<L, kSource, SpecialCases::general>;
  }
  return nullptr;
}

template <typename L>
ScaledSpan choose_scaled(const Encoder& encoder) {
  if (encoder.policy.rounding != Rounding::nearest_even || !lanes_fit(encoder)) return nullptr;
  switch (encoder.source) {
    case DType::f32:
      return choose_scaled_cases<L, DType::f32>(encoder);
    case DType::f16:
      return choose_scaled_cases<L, DType::f16>(encoder);
    case DType::bf16:
      return choose_scaled_cases<L, DType::bf16>(encoder);
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace octavo::cpu
