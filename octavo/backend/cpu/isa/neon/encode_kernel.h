// The NEON encoder: one algorithm for every format of up to eight bits with a mantissa.
//
// With t the power of two at or below |x| (not below the smallest normal number) and m = t *
// 2^(23-M), the sum |x| + m has the format's spacing as its last place: the floating-point adder
// rounds, in whatever direction FPCR says, for normal and subnormal results alike. Then
//   field = bits(|x| + m) - bits(m) + (t - t_min) >> (23 - M),
// and because a field has at most eight bits and m ends in zeros, only the last byte of the sum and
// the exponent of t are needed. Overflow is a clamp of |x| to a grid point beforehand
// (round/encode_edges.h).
// Rounding modes:
//   nearest_even, toward_zero        the adder's own
//   up, down                         the adder's own, with the sign put back on |x| and m
//   nearest_away, stochastic         add half a step, or a random part of one, rounding toward zero
//   to_odd                           toward zero, then set the last bit if the sum was inexact
// The additions before the last one also round toward zero, and truncation commutes with comparing
// against grid points, so nothing is rounded twice.
//
// 8 operations per vector for nearest_even; everything after that is on sixteen bytes at once. No
// branch or address depends on data.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/isa/neon/lanes.h"
#include "octavo/backend/cpu/isa/neon/philox_neon.h"
#include "octavo/base/fp_env.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

// Can this kernel encode the format in lanes of the given width? `exact_bits` is how many mantissa
// bits a lane is sure to hold of the source; two beyond the format's own (or the random bits) are
// needed.
inline bool lanes_fit(const Encoder& encoder, int lane_mantissa, int lane_bias, int exact_bits) {
  const Format& format = encoder.format;
  const bool stochastic = encoder.policy.rounding == Rounding::stochastic;
  const int mantissa = format.mantissa_bits,
            needed = mantissa + (stochastic ? encoder.policy.stochastic_bits : 2);
  if (format.bits() > 8 || mantissa == 0 || !format.is_signed || needed > exact_bits) return false;
  // The exponent of the grid point above the largest value, which the clamp may leave in place.
  const int top =
      static_cast<int>((limit_field(format, true) + 1) >> mantissa) - 1 + format.min_exponent();
  const int min_exponent = format.min_exponent();
  // The magic number must not overflow, and half a step must be a normal number.
  return top + lane_mantissa - mantissa <= lane_bias &&
         min_exponent - mantissa - 1 >= 1 - lane_bias;
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

// The constants of a call. Words are in the width of a lane; the limits and Inf are in the domain
// of the source (which for F16 lanes is bf16).
template <typename Source>
struct EncodeConstants {
  using Lanes = typename Source::Lanes;
  using Bits = typename Lanes::Bits;
  using Word = typename Lanes::Word;

  Bits limit_positive, limit_negative, smallest, magic, half_step, step;
  int mantissa_bits;
  uint8x16_t base;  // the bias of the field in the sum
  uint8x16_t nan_field, nan_keeps_sign;
  int8x16_t sign_shift;
  // For the general epilogue.
  uint8x16_t sign_code, zero_sign, negate, code_mask, nan_positive, nan_negative, inf_positive,
      inf_negative;

  explicit EncodeConstants(const Encoder& encoder) {
    const Format& format = encoder.format;
    mantissa_bits = format.mantissa_bits;
    const auto exponents = [](int n) {
      return Lanes::splat(static_cast<Word>(static_cast<Word>(n) << Lanes::kMantissa));
    };
    limit_positive =
        Lanes::splat(Source::magnitude_word(grid_value(format, encoder.overflow_field[0])));
    limit_negative =
        Lanes::splat(Source::magnitude_word(grid_value(format, encoder.overflow_field[1])));
    smallest = exponents(format.min_exponent() + Lanes::kBias);
    magic = exponents(Lanes::kMantissa - mantissa_bits);
    half_step = exponents(mantissa_bits + 1);
    step = exponents(mantissa_bits);
    const auto bytes = [](std::uint32_t code) {
      return vdupq_n_u8(static_cast<std::uint8_t>(code));
    };
    // Stochastic rounding adds a whole step besides the random part of one.
    const bool stochastic = encoder.policy.rounding == Rounding::stochastic;
    base =
        bytes((static_cast<std::uint32_t>(format.min_exponent() + Lanes::kBias) << mantissa_bits) +
              (stochastic ? 1 : 0));
    nan_field = bytes(encoder.nan_code[0] & format.magnitude_mask());
    nan_keeps_sign = bytes(encoder.nan_code[0] == encoder.nan_code[1] ? 0 : 0xFF);
    sign_shift = vdupq_n_s8(static_cast<std::int8_t>(format.bits() - 8));
    sign_code = bytes(format.twos_complement ? 0 : format.sign_mask());
    zero_sign = bytes(format.has_negative_zero() ? format.sign_mask() : 0);
    negate = bytes(format.twos_complement ? 0xFF : 0);
    code_mask = bytes(format.code_mask());
    nan_positive = bytes(encoder.nan_code[0]);
    nan_negative = bytes(encoder.nan_code[1]);
    inf_positive = bytes(encoder.inf_code[0]);
    inf_negative = bytes(encoder.inf_code[1]);
  }
};

// Which special cases after rounding a call has to handle.
enum class Epilogue {
  eight_bits,  // both signs alike, Inf is just another overflow, NaN keeps its sign; sign in bit 7
  narrow,      // the same with any sign bit, and a NaN that may lose its sign
  general,
};

inline Epilogue epilogue_of(const Encoder& encoder) {
  const Format& format = encoder.format;
  const std::uint32_t sign = format.sign_mask(), field = encoder.overflow_field[0];
  const bool alike = format.has_negative_zero() && encoder.overflow_field[1] == field &&
                     encoder.inf_code[0] == field && encoder.inf_code[1] == (field | sign);
  const bool nan_keeps = encoder.nan_code[1] == (encoder.nan_code[0] | sign);
  const bool nan_drops =
      encoder.nan_code[1] == encoder.nan_code[0] && (encoder.nan_code[0] & sign) == 0;
  if (!alike || !(nan_keeps || nan_drops)) return Epilogue::general;
  return format.bits() == 8 && nan_keeps ? Epilogue::eight_bits : Epilogue::narrow;
}

// The sum whose last byte holds the field, for a magnitude and the power of two at or below it.
template <typename Source, Rounding kRounding>
[[gnu::always_inline]] inline typename Source::Lanes::Bits round_lanes(
    const EncodeConstants<Source>& k, typename Source::Lanes::Bits magnitude,
    typename Source::Lanes::Bits power, typename Source::Lanes::Bits sign,
    typename Source::Lanes::Bits random) {
  using L = typename Source::Lanes;
  using Bits = typename L::Bits;
  Bits big = L::add(power, k.magic);
  if constexpr (kRounding == Rounding::nearest_away)
    magnitude = L::fadd(magnitude, L::sub(power, k.half_step));
  if constexpr (kRounding == Rounding::stochastic)
    magnitude = L::fadd(magnitude, L::bor(L::sub(power, k.step), random));
  if constexpr (kRounding == Rounding::up || kRounding == Rounding::down) {
    magnitude = L::bor(magnitude, sign);
    big = L::bor(big, sign);
  }
  const Bits sum = L::fadd(magnitude, big);
  if constexpr (kRounding == Rounding::to_odd) {
    return L::bor(sum, L::bic(L::splat(1), L::fequal(L::fsub(sum, big), magnitude)));
  }
  return sum;
}

template <typename Source, Rounding kRounding, Epilogue kEpilogue, bool kOnlyFinite = false>
[[gnu::always_inline]] inline uint8x16_t encode_raw(const EncodeConstants<Source>& k,
                                                    const typename Source::Lanes::Bits* raw,
                                                    const typename Source::Lanes::Bits* random) {
  using L = typename Source::Lanes;
  using Bits = typename L::Bits;
  constexpr int kVectors = L::kVectors;
  constexpr bool kGeneral = kEpilogue == Epilogue::general;
  constexpr bool kSigned = kRounding == Rounding::up || kRounding == Rounding::down;
  Bits sums[kVectors], powers[kVectors], nan[kVectors], inf[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const Bits magnitude = L::band(raw[v], L::splat(L::kMagnitude));
    Bits limit = k.limit_positive;
    if constexpr (kGeneral)
      limit = L::select(L::sign_mask(raw[v]), k.limit_negative, k.limit_positive);
    if constexpr (!kOnlyFinite) nan[v] = L::above(magnitude, L::splat(Source::kInf));
    if constexpr (kGeneral) inf[v] = L::equal(magnitude, L::splat(Source::kInf));
    const Bits sign = kSigned ? L::bic(raw[v], L::splat(L::kMagnitude)) : L::splat(0);
    const Bits lane = Source::template to_lane<kRounding>(L::min(magnitude, limit));
    powers[v] = L::max(L::band(lane, L::splat(L::kExponent)), k.smallest);
    sums[v] = round_lanes<Source, kRounding>(k, lane, powers[v], sign,
                                             random != nullptr ? random[v] : L::splat(0));
  }
  uint8x16_t field =
      vsubq_u8(vaddq_u8(L::low_bytes(sums), L::binade_bytes(powers, k.mantissa_bits)), k.base);
  const uint8x16_t tops = L::top_bytes(raw), sign_bit = vdupq_n_u8(0x80);
  uint8x16_t is_nan = vdupq_n_u8(0);
  if constexpr (!kOnlyFinite) {
    is_nan = L::low_bytes(nan);
    if constexpr (!kGeneral) field = vbslq_u8(is_nan, k.nan_field, field);
  }
  if constexpr (kEpilogue == Epilogue::eight_bits) return vbslq_u8(sign_bit, tops, field);
  if constexpr (kEpilogue == Epilogue::narrow && kOnlyFinite)
    return vbslq_u8(k.sign_code, vshlq_u8(tops, k.sign_shift), field);
  if constexpr (kEpilogue == Epilogue::narrow) {
    const uint8x16_t lost = vbicq_u8(is_nan, k.nan_keeps_sign);
    const uint8x16_t sign = vshlq_u8(vandq_u8(tops, sign_bit), k.sign_shift);
    return vorrq_u8(field, vbicq_u8(sign, lost));
  }
  const uint8x16_t negative = vcltzq_s8(vreinterpretq_s8_u8(tops));
  const uint8x16_t sign = vandq_u8(negative, vbslq_u8(vceqzq_u8(field), k.zero_sign, k.sign_code));
  const uint8x16_t flip = vandq_u8(negative, k.negate);
  uint8x16_t code = vandq_u8(vsubq_u8(veorq_u8(vorrq_u8(field, sign), flip), flip), k.code_mask);
  code = vbslq_u8(L::low_bytes(inf), vbslq_u8(negative, k.inf_negative, k.inf_positive), code);
  return vbslq_u8(is_nan, vbslq_u8(negative, k.nan_negative, k.nan_positive), code);
}

template <typename Source, Rounding kRounding, Epilogue kEpilogue>
[[gnu::always_inline]] inline uint8x16_t encode16(const EncodeConstants<Source>& k,
                                                  const std::byte* values,
                                                  const typename Source::Lanes::Bits* random) {
  typename Source::Lanes::Bits raw[Source::Lanes::kVectors];
  Source::load(values, raw);
  return encode_raw<Source, kRounding, kEpilogue>(k, raw, random);
}

constexpr std::int64_t kGroup = 16;

// Fewer than sixteen elements, or elements that do not start at a group of random draws: staged in
// a buffer, from element `skip` on.
template <typename Source, Rounding kRounding, Epilogue kEpilogue>
void encode_partial(const EncodeConstants<Source>& k, const std::byte* values, int value_bytes,
                    std::uint8_t* codes, std::int64_t count, std::int64_t skip,
                    const typename Source::Lanes::Bits* random) {
  alignas(16) std::byte staged[kGroup * 8] = {};
  alignas(16) std::uint8_t out[kGroup];
  std::memcpy(staged + skip * value_bytes, values, static_cast<std::size_t>(count * value_bytes));
  vst1q_u8(out, encode16<Source, kRounding, kEpilogue>(k, staged, random));
  std::memcpy(codes, out + skip, static_cast<std::size_t>(count));
}

template <typename Source, Rounding kRounding, Epilogue kEpilogue>
void encode_neon(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                 std::uint64_t index) {
  const FpEnvGuard guard(adder_mode(kRounding));
  const EncodeConstants<Source> k(encoder);
  const int bytes = element_bytes(encoder.source);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::uint8_t*>(codes);
  std::int64_t done = 0;
  if constexpr (kRounding == Rounding::stochastic) {
    RandomGroups random(encoder.policy);
    const auto skip = static_cast<std::int64_t>(index % kGroup);
    if (skip != 0) {
      done = n < kGroup - skip ? n : kGroup - skip;
      encode_partial<Source, kRounding, kEpilogue>(k, from, bytes, to, done, skip,
                                                   random.at(index - index % kGroup));
    }
    for (; done + kGroup <= n; done += kGroup) {
      const auto* draws = random.at(index + static_cast<std::uint64_t>(done));
      vst1q_u8(to + done, encode16<Source, kRounding, kEpilogue>(k, from + done * bytes, draws));
    }
    if (done < n) {
      const auto* draws = random.at(index + static_cast<std::uint64_t>(done));
      encode_partial<Source, kRounding, kEpilogue>(k, from + done * bytes, bytes, to + done,
                                                   n - done, 0, draws);
    }
  } else {
    (void)index;
    for (; done + 2 * kGroup <= n; done += 2 * kGroup) {
      const uint8x16_t first =
          encode16<Source, kRounding, kEpilogue>(k, from + done * bytes, nullptr);
      const uint8x16_t second =
          encode16<Source, kRounding, kEpilogue>(k, from + (done + kGroup) * bytes, nullptr);
      vst1q_u8(to + done, first);
      vst1q_u8(to + done + kGroup, second);
    }
    for (; done < n; done += kGroup) {
      const std::int64_t count = n - done < kGroup ? n - done : kGroup;
      encode_partial<Source, kRounding, kEpilogue>(k, from + done * bytes, bytes, to + done, count,
                                                   0, nullptr);
    }
  }
}

// Nearest even only, as nearly all quantizing is: the product has to be rounded so as well.
template <typename Source, Epilogue kEpilogue, bool kOnlyFinite>
void encode_scaled_neon(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                        const float* factors, const std::uint8_t* poisoned, std::int64_t width) {
  const FpEnvGuard guard;
  const EncodeConstants<Source> k(encoder);
  const int bytes = element_bytes(encoder.source);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::uint8_t*>(codes);
  using Bits = typename Source::Lanes::Bits;
  constexpr int kVectors = Source::Lanes::kVectors;
  const uint8x16_t poison = vdupq_n_u8(encoder.poison_code);
  const auto codes_of = [&](const Bits* raw, uint8x16_t mask) __attribute__((always_inline)) {
    return vbslq_u8(
        mask, poison,
        encode_raw<Source, Rounding::nearest_even, kEpilogue, kOnlyFinite>(k, raw, nullptr));
  };
  // Two at a time, interleaved: a single dependency chain stalls the core.
  const auto two_groups = [&](std::int64_t at, float32x4_t first_factor, uint8x16_t first_mask,
                              float32x4_t second_factor, uint8x16_t second_mask)
      __attribute__((always_inline)) {
    Bits first[kVectors], second[kVectors];
    Source::load_scaled(from + at * bytes, first_factor, first);
    Source::load_scaled(from + (at + kGroup) * bytes, second_factor, second);
    const uint8x16_t first_codes = codes_of(first, first_mask),
                     second_codes = codes_of(second, second_mask);
    vst1q_u8(to + at, first_codes);
    vst1q_u8(to + at + kGroup, second_codes);
  };
  std::int64_t done = 0;
  if (width == kGroup) {
    for (; done + 2 * kGroup <= n; done += 2 * kGroup, factors += 2, poisoned += 2)
      two_groups(done, vdupq_n_f32(factors[0]), vdupq_n_u8(poisoned[0]), vdupq_n_f32(factors[1]),
                 vdupq_n_u8(poisoned[1]));
  }
  while (done + kGroup <= n) {
    const float32x4_t factor = vdupq_n_f32(*factors++);
    const uint8x16_t mask = vdupq_n_u8(*poisoned++);
    const std::int64_t end = n - done < width ? n / kGroup * kGroup : done + width;
    for (; done + 2 * kGroup <= end; done += 2 * kGroup)
      two_groups(done, factor, mask, factor, mask);
    if (done < end) {
      Bits raw[kVectors];
      Source::load_scaled(from + done * bytes, factor, raw);
      vst1q_u8(to + done, codes_of(raw, mask));
      done += kGroup;
    }
  }
  if (done < n) {
    // The rest may belong to a tile that began earlier.
    const std::int64_t tile = done % width == 0 ? 0 : -1;
    alignas(16) std::byte staged[kGroup * 8] = {};
    alignas(16) std::uint8_t out[kGroup];
    std::memcpy(staged, from + done * bytes, static_cast<std::size_t>((n - done) * bytes));
    typename Source::Lanes::Bits raw[Source::Lanes::kVectors];
    Source::load_scaled(staged, vdupq_n_f32(factors[tile]), raw);
    vst1q_u8(out, codes_of(raw, vdupq_n_u8(poisoned[tile])));
    std::memcpy(to + done, out, static_cast<std::size_t>(n - done));
  }
}

}  // namespace
}  // namespace octavo::cpu
