// Decoders of codes in panel order: a vector of words of four bytes, one word of each of as many
// rows, gives the values of code j of each row. What one operation for four or eight codes can find
// out, such as NaN, is gathered word by word and applied at the end (Seen).
#pragma once

#include <bit>
#include <cstdint>

#include "octavo/backend/cpu/isa/avx2/decode_kernel.h"
#include "octavo/format/decode.h"

namespace octavo::cpu {
namespace {

// Four bits: by a table.
template <typename L>
struct NibbleCodes {
  using Bits = typename L::Bits;
  static constexpr int kBits = 4;
  static constexpr bool kFindsNan = false, kScaled = true;
  Bits table;

  explicit NibbleCodes(const Format& format) {
    alignas(64) float values[16];
    for (std::uint32_t code = 0; code < 16; ++code)
      values[code] = static_cast<float>(decode(format, code));
    table = L::nibble_table(values);
  }
  [[gnu::always_inline]] Bits operator()(Bits words, int j) const {
    return L::nibble_value(table, L::shift_right(words, kBits * j));
  }
};

// Up to eight bits in a byte, whatever specials there are.
template <typename L>
struct AnyCodes {
  using Bits = typename L::Bits;
  static constexpr int kBits = 8;
  static constexpr bool kFindsNan = false, kScaled = true;
  DecodeConstants<L> constants;
  Bits mask;

  explicit AnyCodes(const Format& format) : constants(format), mask(L::splat(format.code_mask())) {}
  [[gnu::always_inline]] Bits operator()(Bits words, int j) const {
    return decode_lanes<L>(constants, L::band(L::shift_right(words, kBits * j), mask));
  }
};

// The same without Inf. A field moved to f32's exponent and mantissa is the value y of a normal
// number; of a subnormal one, which has the exponent before the least, it is too large, and 2 y - s
// is the value, s the smallest normal number. Where y >= s that is no smaller than y: the minimum
// of both is the value of either kind, exactly.
//
// A NaN in a row makes NaN of all products with it, so it need not be where it was: kFindsNan says
// that it is looked for in words, and any element of the panel's row becomes NaN instead.
template <typename L, bool kHasNan>
struct FiniteCodes {
  using Bits = typename L::Bits;
  static constexpr int kBits = 8;
  static constexpr bool kFindsNan = kHasNan, kScaled = true;
  Bits field_mask, rebias, two, least, sign_bit;
  int top, down;  // shifts: to the top of a word, and to where f32 has the field

  explicit FiniteCodes(const Format& format)
      : field_mask(L::splat(format.magnitude_mask() << (23 - format.mantissa_bits))),
        rebias(L::splat(static_cast<std::uint32_t>(127 - format.bias) << 23)),
        two(L::splat(std::bit_cast<std::uint32_t>(2.0F))),
        least(L::splat(std::bit_cast<std::uint32_t>(
            -static_cast<float>(power_of_two(format.min_exponent()))))),
        sign_bit(L::splat(0x80000000u)),
        top(32 - format.bits()),
        down(9 - format.bits() + format.mantissa_bits) {}
  [[gnu::always_inline]] Bits operator()(Bits words, int j) const {
    const Bits at_top = L::shift_left(words, top - kBits * j);
    const Bits y = L::add(L::band(L::shift_right(at_top, down), field_mask), rebias);
    return L::with_sign(sign_bit, at_top, L::fmin(y, L::fmla(y, two, least)));
  }
  // The y of the smallest field has to be a normal f32, and NaN the code with all bits set.
  static bool decodes(const Format& format) {
    const bool has_nan = format.nan != Nan::none;
    return lanes_decode(format) && format.bias < 127 &&
           (has_nan ? specials_of(format) == Specials::nan_on_top && format.bits() == 8 &&
                          format.max_field() + 1 == format.magnitude_mask()
                    : specials_of(format) == Specials::none);
  }
};

// Integers of a byte, in units of the smallest value.
template <typename L>
struct IntegerCodes {
  using Bits = typename L::Bits;
  static constexpr int kBits = 8;
  static constexpr bool kFindsNan = false, kScaled = true;
  Bits unit;

  explicit IntegerCodes(const Format& format)
      : unit(L::splat(std::bit_cast<std::uint32_t>(static_cast<float>(min_positive(format))))) {}
  [[gnu::always_inline]] Bits operator()(Bits words, int j) const {
    const Bits whole = L::sign_extend_top(L::shift_left(words, 24 - kBits * j));
    return L::fmul(L::to_float(whole), unit);
  }
};

// Values: of f32 a word is one, of bf16 two.
template <typename L>
struct F32Values {
  using Bits = typename L::Bits;
  static constexpr int kBits = 32;
  static constexpr bool kFindsNan = false, kScaled = false;

  explicit F32Values(const Format&) {}
  [[gnu::always_inline]] Bits operator()(Bits words, int) const { return words; }
};
template <typename L>
struct Bf16Values {
  using Bits = typename L::Bits;
  static constexpr int kBits = 16;
  static constexpr bool kFindsNan = false, kScaled = false;
  Bits upper = L::splat(0xFFFF0000u);

  explicit Bf16Values(const Format&) {}
  [[gnu::always_inline]] Bits operator()(Bits words, int j) const {
    return j == 0 ? L::shift_left(words, 16) : L::band(words, upper);
  }
};

// Is there a NaN, a byte of 127 but for its sign, among the codes of a row?
template <typename L>
struct SeenNan {
  using Bits = typename L::Bits;
  Bits most = L::splat(0);

  [[gnu::always_inline]] void look(Bits words) {
    most = L::max_bytes(most, L::band(words, L::splat(0x7F7F7F7Fu)));
  }
  // NaN for rows that have one, else zero.
  [[gnu::always_inline]] Bits nan() const {
    const Bits tops = L::band(L::add(most, L::splat(0x01010101u)), L::splat(0x80808080u));
    return L::select(L::equal(tops, L::splat(0)), L::splat(0), L::splat(0x7FC00000u));
  }
};

}  // namespace
}  // namespace octavo::cpu
