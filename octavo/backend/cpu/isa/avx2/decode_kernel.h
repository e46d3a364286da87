// The x86 decoder over f32 lanes: codes of up to eight bits of any signed format whose values f32
// holds. A normal field is moved to f32's exponent and mantissa, a subnormal one converted from an
// integer and multiplied by the format's smallest step; specials are selected. The last step, to
// bf16, f16 or f64, is exact or rounds as the target does. No branch or address depends on data.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/isa/avx2/memory_ahead.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

template <typename L>
struct DecodeConstants {
  using Bits = typename L::Bits;
  Bits field_mask, sign_bit, rebias, last_subnormal, step, last_finite, inf_field, nan_code;
  int up, sign_shift;

  explicit DecodeConstants(const Format& format) {
    field_mask = L::splat(format.magnitude_mask());
    sign_bit = L::splat(0x80000000u);
    up = 23 - format.mantissa_bits;
    sign_shift = 32 - format.bits();
    rebias = L::splat(static_cast<std::uint32_t>(127 - format.bias) << 23);
    last_subnormal = L::splat((1u << format.mantissa_bits) - 1);
    step = L::splat(
        std::bit_cast<std::uint32_t>(static_cast<float>(power_of_two(format.min_step_exponent()))));
    const bool has_specials = format.nan == Nan::ieee || format.nan == Nan::all_ones;
    constexpr std::uint32_t kNever = 0x7FFFFFFFu;
    last_finite = L::splat(has_specials ? format.max_field() : kNever);
    inf_field = L::splat(format.has_inf ? format.max_field() + 1 : kNever);
    nan_code = L::splat(format.nan == Nan::negative_zero ? format.sign_mask() : kNever);
  }
};

// Which specials there may be: only what a format has needs an operation.
enum class Specials { none, nan_on_top, any };
inline Specials specials_of(const Format& format) {
  if (format.has_inf || format.nan == Nan::negative_zero) return Specials::any;
  return format.nan == Nan::none ? Specials::none : Specials::nan_on_top;
}

template <typename L, Specials kSpecials = Specials::any>
[[gnu::always_inline]] inline typename L::Bits decode_lanes(const DecodeConstants<L>& k,
                                                            typename L::Bits code) {
  using Bits = typename L::Bits;
  constexpr std::uint32_t kInf = 0x7F800000u, kNan = 0x7FC00000u;
  const Bits field = L::band(code, k.field_mask);
  const Bits sign = L::band(L::shift_left(code, k.sign_shift), k.sign_bit);
  const Bits normal = L::add(L::shift_left(field, k.up), k.rebias);
  const Bits small = L::fmul(L::to_float(field), k.step);
  Bits value = L::select(L::above(field, k.last_subnormal), normal, small);
  if constexpr (kSpecials == Specials::none) return L::bor(value, sign);
  value = L::select(L::above(field, k.last_finite), L::splat(kNan), value);
  if constexpr (kSpecials == Specials::nan_on_top) return L::bor(value, sign);
  value = L::select(L::equal(field, k.inf_field), L::splat(kInf), value);
  return L::select(L::equal(code, k.nan_code), L::splat(kNan), L::bor(value, sign));
}

template <typename L, DType kTarget>
void decode_span(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  constexpr std::int64_t kBytes = element_bytes(kTarget);
  const FpEnvGuard guard;
  const DecodeConstants<L> k(decoder.format);
  const auto code_mask = L::splat(decoder.format.code_mask());
  const auto* __restrict from = static_cast<const std::uint8_t*>(codes);
  auto* __restrict to = static_cast<std::byte*>(values);
  const auto decoded = [&](const std::uint8_t* in) __attribute__((always_inline)) {
    return decode_lanes<L>(k, L::band(L::load_codes(in), code_mask));
  };
  const auto one = [&](const std::uint8_t* in, std::byte* out) __attribute__((always_inline)) {
    L::template store<kTarget>(decoded(in), out);
  };
  // At most a vector, and less than that.
  const auto some = [&](std::int64_t at, std::int64_t left) {
    alignas(64) std::uint8_t staged[L::kLanes] = {};
    alignas(64) std::byte out[L::kLanes * kBytes];
    const auto count = static_cast<std::size_t>(left);
    std::memcpy(staged, from + at, count);
    one(staged, out);
    std::memcpy(to + at * kBytes, out, count * kBytes);
  };
  constexpr std::int64_t kStep = 4 * L::kLanes;
  std::int64_t done = 0;
  if constexpr (kTarget == DType::f32) {
    const std::int64_t head = decoder.streams ? elements_to_line(to, kBytes) : -1;
    if (head >= 0 && n >= kStep) {
      for (; done < head; done += L::kLanes)
        some(done, std::min<std::int64_t>(L::kLanes, head - done));
      for (done = head; done + kStep <= n; done += kStep) {
        prefetch_ahead<kStep>(from + done);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          L::stream_words(decoded(from + done + i * L::kLanes),
                          to + (done + i * L::kLanes) * kBytes);
      }
      L::stored();
    }
  }
  for (; done + kStep <= n; done += kStep) {
    prefetch_ahead<kStep>(from + done);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      one(from + done + i * L::kLanes, to + (done + i * L::kLanes) * kBytes);
  }
  for (; done < n; done += L::kLanes) some(done, std::min<std::int64_t>(L::kLanes, n - done));
}

// The last step, to bf16, drops bits that are zero: products are exact in it.
template <typename L>
void decode_scaled_span(const Decoder& decoder, const void* codes, std::uint16_t* values,
                        std::int64_t n, const float* scales, std::int64_t width) {
  const FpEnvGuard guard;
  const DecodeConstants<L> k(decoder.format);
  const auto code_mask = L::splat(decoder.format.code_mask());
  const auto* __restrict from = static_cast<const std::uint8_t*>(codes);
  auto* __restrict to = values;
  const auto one = [&](const std::uint8_t* in, float scale, std::uint16_t* out)
      __attribute__((always_inline)) {
    const auto value = decode_lanes<L>(k, L::band(L::load_codes(in), code_mask));
    const auto scaled = L::fmul(value, L::splat(std::bit_cast<std::uint32_t>(scale)));
    L::template store<DType::bf16>(scaled, reinterpret_cast<std::byte*>(out));
  };
  std::int64_t done = 0;
  for (std::int64_t tile = 0; done + L::kLanes <= n; ++tile) {
    const std::int64_t end = done + width < n ? done + width : n;
    for (; done + L::kLanes <= end; done += L::kLanes) one(from + done, scales[tile], to + done);
    if (done < end) break;
  }
  if (done < n) {
    alignas(64) std::uint8_t staged[L::kLanes] = {};
    alignas(64) std::uint16_t out[L::kLanes];
    std::memcpy(staged, from + done, static_cast<std::size_t>(n - done));
    one(staged, scales[done / width], out);
    std::memcpy(to + done, out, static_cast<std::size_t>(n - done) * sizeof(std::uint16_t));
  }
}

// e8m0fnu: the code is f32's exponent. 2^-127 is subnormal and 255 is NaN: both have the first bit
// of the mantissa set.
template <typename L>
void decode_e8m0(const Decoder&, const void* codes, void* values, std::int64_t n) {
  const auto* __restrict from = static_cast<const std::uint8_t*>(codes);
  auto* __restrict to = static_cast<float*>(values);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t code = from[i];
    const std::uint32_t at_an_end = static_cast<std::uint32_t>(((code + 1) & 0xFF) <= 1) << 22;
    to[i] = std::bit_cast<float>(code << 23 | at_an_end);
  }
}

// f16 to f32, which is an instruction (F16C) but for NaN: a code that is one, with its sign.
template <typename L>
void decode_halves(const Decoder&, const void* codes, void* values, std::int64_t n) {
  constexpr std::int64_t kFrom = element_bytes(DType::f16), kTo = element_bytes(DType::f32);
  const FpEnvGuard guard;
  const auto sign = L::splat(0x80000000u), size = L::splat(0x7FFFFFFFu),
             inf = L::splat(0x7F800000u), nan = L::splat(0x7FC00000u);
  const auto* __restrict from = static_cast<const std::byte*>(codes);
  auto* __restrict to = static_cast<std::byte*>(values);
  const auto one = [&](const std::byte* in, std::byte* out) __attribute__((always_inline)) {
    const auto value = L::template load<DType::f16>(in);
    const auto is_nan = L::above(L::band(value, size), inf);
    L::store_words(L::select(is_nan, L::bor(L::band(value, sign), nan), value), out);
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

// mxint8, int8 and int4: an integer in units of the smallest value. To bf16 it is exact: eight
// significant bits.
template <typename L, DType kTarget>
void decode_integers(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  constexpr std::int64_t kBytes = element_bytes(kTarget);
  const auto smallest = static_cast<float>(min_positive(decoder.format));
  const auto sign = L::splat(decoder.format.sign_mask()),
             mask = L::splat(decoder.format.code_mask()),
             unit = L::splat(std::bit_cast<std::uint32_t>(smallest));
  const auto* __restrict from = static_cast<const std::uint8_t*>(codes);
  auto* __restrict to = static_cast<std::byte*>(values);
  const auto one = [&](const std::uint8_t* in, std::byte* out) __attribute__((always_inline)) {
    const auto whole = L::sub(L::bxor(L::band(L::load_codes(in), mask), sign), sign);
    L::template store<kTarget>(L::fmul(L::to_float(whole), unit), out);
  };
  std::int64_t done = 0;
  for (; done + L::kLanes <= n; done += L::kLanes) one(from + done, to + done * kBytes);
  if (done < n) {
    alignas(64) std::uint8_t staged[L::kLanes] = {};
    alignas(64) std::byte out[L::kLanes * kBytes];
    const auto count = static_cast<std::size_t>(n - done);
    std::memcpy(staged, from + done, count);
    one(staged, out);
    std::memcpy(to + done * kBytes, out, count * kBytes);
  }
}

// Can f32 lanes decode the format?
inline bool lanes_decode(const Format& format) {
  const int top = static_cast<int>(format.max_field() >> format.mantissa_bits) - format.bias;
  return format.bits() <= 8 && format.is_signed && !format.twos_complement && format.has_zero &&
         format.min_exponent() >= -126 && top <= 127;
}

// Null where they cannot, or the target does not hold the format's values.
template <typename L>
DecodeSpan choose_decode(const Decoder& decoder) {
  const Format& format = decoder.format;
  if (format == e8m0fnu && decoder.target == DType::f32) return decode_e8m0<L>;
  if (format == f16_format && decoder.target == DType::f32) return decode_halves<L>;
  if (format.twos_complement && decoder.target == DType::f32) return decode_integers<L, DType::f32>;
  if (format.twos_complement && decoder.target == DType::bf16)
    return decode_integers<L, DType::bf16>;
  if (!lanes_decode(format)) return nullptr;
  switch (decoder.target) {
    case DType::f32:
      return decode_span<L, DType::f32>;
    case DType::f64:
      return decode_span<L, DType::f64>;
    case DType::f16:
      return decode_span<L, DType::f16>;
    case DType::bf16:
      return format.min_step_exponent() >= -126 ? decode_span<L, DType::bf16> : nullptr;
    case DType::code:
      break;
  }
  return nullptr;
}

}  // namespace
}  // namespace octavo::cpu
