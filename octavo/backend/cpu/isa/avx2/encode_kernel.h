// Spans of the x86 encoder over f32 lanes (encode_lanes.h): casts, and values times the factor of
// their tile. Stochastic rounding and f64 sources are the portable kernel's.
#pragma once

#include <bit>
#include <cstring>

#include "octavo/backend/cpu/isa/avx2/encode_lanes.h"
#include "octavo/backend/cpu/isa/avx2/memory_ahead.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

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

template <typename L, Rounding kRounding, SpecialCases kCases>
[[gnu::always_inline]] inline typename L::Bits codes_of_group(const EncodeConstants<L>& k,
                                                              const typename L::Bits raw[4]) {
  if constexpr (kCases == SpecialCases::general)
    return encode_any_group<L, kRounding>(k, raw);
  else
    return encode_group<L, kRounding, kCases>(k, raw);
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
    prefetch_ahead<L::kGroup * kBytes>(in);
    typename L::Bits raw[4];
    L::template load_group<kSource>(in, raw);
    const auto packed = codes_of_group<L, kRounding, kCases>(k, raw);
    L::store_words(L::template in_order<kSource>(packed), out);
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
  switch (special_cases(encoder)) {
    case SpecialCases::none:  // one kernel less
    case SpecialCases::nan:
      return encode_span<L, kSource, kRounding, SpecialCases::nan>;
    case SpecialCases::top_nan:
      return encode_span<L, kSource, kRounding, SpecialCases::top_nan>;
    case SpecialCases::general:
      break;
  }
  return encode_span<L, kSource, kRounding, SpecialCases::general>;
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

// f32 to f16 as F16C does it: to nearest even, Inf beyond.
inline bool is_narrowing(const Encoder& encoder) {
  const EncodePolicy& policy = encoder.policy;
  return encoder.format == f16_format && encoder.source == DType::f32 &&
         policy.rounding == Rounding::nearest_even && policy.overflow == Overflow::ieee &&
         policy.nan_code == NanCode::signed_quiet;
}

template <typename L>
void encode_halves(const Encoder&, const void* values, void* codes, std::int64_t n, std::uint64_t) {
  constexpr std::int64_t kFrom = element_bytes(DType::f32), kTo = element_bytes(DType::f16);
  const FpEnvGuard guard;
  const auto sign = L::splat(0x80000000u), size = L::splat(0x7FFFFFFFu),
             inf = L::splat(0x7F800000u), nan = L::splat(0x7FC00000u);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::byte*>(codes);
  const auto one = [&](const std::byte* in, std::byte* out) __attribute__((always_inline)) {
    const auto value = L::load_words(in);
    const auto is_nan = L::above(L::band(value, size), inf);
    L::template store<DType::f16>(L::select(is_nan, L::bor(L::band(value, sign), nan), value), out);
  };
  std::int64_t done = 0;
  for (; done + L::kLanes <= n; done += L::kLanes) one(from + done * kFrom, to + done * kTo);
  if (done < n) {
    alignas(64) std::byte staged[L::kLanes * kFrom] = {}, out[L::kLanes * kTo];
    const auto count = static_cast<std::size_t>(n - done);
    std::memcpy(staged, from + done * kFrom, count * kFrom);
    one(staged, out);
    std::memcpy(to + done * kTo, out, count * kTo);
  }
}

// Null where lanes cannot encode the format, or not under this policy.
template <typename L>
EncodeSpan choose_encode(const Encoder& encoder) {
  if (is_narrowing(encoder)) return encode_halves<L>;
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

// Values times the factor of their tile, to nearest even. A group in one tile has one factor; in
// narrow tiles, whose widths are multiples of sixteen, each sixteen values have their own.
template <typename L, DType kSource, SpecialCases kCases>
void encode_scaled_span(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                        const float* factors, const std::uint8_t* poisoned, std::int64_t width) {
  constexpr std::int64_t kBytes = element_bytes(kSource);
  using Bits = typename L::Bits;
  const FpEnvGuard guard;
  const EncodeConstants<L> k(encoder);
  const Bits poison = L::splat_bytes(encoder.poison_code);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::uint8_t*>(codes);
  const auto finish = [&](const Bits raw[4], Bits is_poisoned, std::uint8_t* out)
      __attribute__((always_inline)) {
    const Bits packed = codes_of_group<L, Rounding::nearest_even, kCases>(k, raw);
    L::store_words(L::merge(is_poisoned, poison, L::template in_order<kSource>(packed)), out);
  };
  const auto in_one_tile = [&](const std::byte* in, Bits factor, Bits is_poisoned,
                               std::uint8_t* out) __attribute__((always_inline)) {
    prefetch_ahead<L::kGroup * kBytes>(in);
    Bits raw[4];
    L::template load_group<kSource>(in, raw);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) raw[i] = L::fmul(raw[i], factor);
    finish(raw, is_poisoned, out);
  };
  std::int64_t tile = 0, left = width;  // of the tile
  const std::int64_t last = (n - 1) / width;
  const auto in_several = [&](const std::byte* in, std::uint8_t* out)
      __attribute__((always_inline)) {
    float of[L::kTilesOf16];
    std::uint32_t flags[L::kTilesOf16];
    for (int t = 0; t < L::kTilesOf16; ++t) {
      // A staged group may have sixteen values beyond the end: any factor will do for them.
      of[t] = factors[tile];
      flags[t] = poisoned[tile] * 0x01010101u;
      left -= 16;
      const bool next = left == 0 && tile < last;
      tile += next;
      left = next ? width : left;
    }
    Bits raw[4];
    L::template load_group<kSource>(in, raw);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) raw[i] = L::fmul(raw[i], L::template of_tile<kSource>(of, i));
    finish(raw, L::template spread<16>(flags), out);
  };
  const auto staged = [&](std::int64_t done, auto&& group) __attribute__((always_inline)) {
    if (done == n) return;
    alignas(64) std::byte in[L::kGroup * kBytes] = {};
    alignas(64) std::uint8_t out[L::kGroup];
    std::memcpy(in, from + done * kBytes, static_cast<std::size_t>((n - done) * kBytes));
    group(in, out);
    std::memcpy(to + done, out, static_cast<std::size_t>(n - done));
  };
  std::int64_t done = 0;
  if (n > width && width % L::kGroup != 0) {
    for (; done + L::kGroup <= n; done += L::kGroup) in_several(from + done * kBytes, to + done);
    return staged(done, in_several);
  }
  for (; done < n; ++tile) {
    const std::int64_t end = done + width < n ? done + width : n;
    const Bits factor = L::splat(std::bit_cast<std::uint32_t>(factors[tile]));
    const Bits is_poisoned = L::splat_bytes(poisoned[tile]);
    for (; done + L::kGroup <= end; done += L::kGroup)
      in_one_tile(from + done * kBytes, factor, is_poisoned, to + done);
    if (done == end) continue;
    return staged(
        done, [&](const std::byte* in, std::uint8_t* out)
                  __attribute__((always_inline)) { in_one_tile(in, factor, is_poisoned, out); });
  }
}

template <typename L, DType kSource>
ScaledSpan choose_scaled_cases(const Encoder& encoder) {
  switch (special_cases(encoder)) {
    case SpecialCases::none:
      return encode_scaled_span<L, kSource, SpecialCases::none>;
    case SpecialCases::top_nan:
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
