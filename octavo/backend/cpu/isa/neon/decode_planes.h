// Decoding by byte planes: the high and the low bytes of sixteen 16-bit results are computed
// separately, each in one vector, and interleaved at the end. bf16 is such a result, f16 is
// another, and f32 is a bf16 with two zero bytes below. Three ways to compute the planes:
//
//   table     formats of up to six bits: all magnitudes are in two registers (TBL)
//   shifted   e4m3fn, e5m2 and their like: for a field f the result is (f << (T - M)) + (rebias <<
//   T), T
//             being the target's mantissa width. The field plus the number of specials, modulo 128,
//             counts specials and subnormals from 0, so that one 16-entry table replaces both (TBX
//             leaves lanes with larger indices alone). 11 operations for sixteen codes.
//   general   the same shifts, the subnormals replaced from a 16-entry table (TBX leaves lanes with
//             larger indices alone), and compares for the specials
//
// Tables are held in registers: no address depends on data.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <optional>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

struct Planes {
  uint8x16_t low, high;
};

// Lifted planes of bf16: exponents are kLift above what they are, those of zeros are 0. A power of
// two is then one saturating subtraction (UQSUB) from each result, which leaves zeros alone; zeros
// must have no sign. kLift is even, so that high bytes alone change, and far above the powers that
// are applied so (gemm_scale_range.cc).
constexpr int kLift = 64;
inline uint8x16_t lifted(uint8x16_t low_bytes, uint8x16_t high_bytes) {
  const uint8x16_t is_number = vtstq_u8(vorrq_u8(low_bytes, high_bytes), vdupq_n_u8(0xFF));
  return vaddq_u8(high_bytes, vandq_u8(is_number, vdupq_n_u8(kLift / 2)));
}

// The two 16-bit layouts. kMantissa decides the shifts, so it is a template argument of the kernel.
struct BfloatTarget {
  static constexpr int kMantissa = 7, kBias = 127;
  static constexpr Format kFormat = bf16_format;
  static constexpr std::uint16_t kInf = 0x7F80, kNan = 0x7FC0;
};
struct HalfTarget {
  static constexpr int kMantissa = 10, kBias = 15;
  static constexpr Format kFormat = f16_format;
  static constexpr std::uint16_t kInf = 0x7C00, kNan = 0x7E00;
};

// The result for a magnitude field, specials included.
template <typename Target>
constexpr std::uint16_t target_bits(const Format& format, std::uint32_t field) {
  if (is_nan(format, field)) return Target::kNan;
  if (is_inf(format, field)) return Target::kInf;
  return static_cast<std::uint16_t>(encode_value(Target::kFormat, decode(format, field)).code);
}

// The results of 32 fields from `first` on, modulo the magnitude mask, as byte planes.
template <typename Target>
struct Table32 {
  std::uint8_t lows[32]{}, highs[32]{};

  constexpr Table32(const Format& format, std::uint32_t first) {
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint16_t entry =
          target_bits<Target>(format, (i + first) & format.magnitude_mask());
      lows[i] = static_cast<std::uint8_t>(entry);
      highs[i] = static_cast<std::uint8_t>(entry >> 8);
    }
  }
  [[nodiscard]] uint8x16x2_t low() const { return {{vld1q_u8(lows), vld1q_u8(lows + 16)}}; }
  [[nodiscard]] uint8x16x2_t high() const { return {{vld1q_u8(highs), vld1q_u8(highs + 16)}}; }
};

// Tables of common formats are constants: making one takes longer than decoding a row.
template <typename Target>
class TableOf {
 public:
  TableOf(const Format& format, std::uint32_t first) {
    if (const Table32<Target>* ready = ready_table(format, first)) {
      table_ = ready;
    } else {
      table_ = &made_.emplace(format, first);
    }
  }
  const Table32<Target>* operator->() const { return table_; }

 private:
  static const Table32<Target>* ready_table(const Format& format, std::uint32_t first) {
    static constexpr Table32<Target> kE4m3fn(e4m3fn, kFirst<e4m3fn>), kE5m2(e5m2, kFirst<e5m2>),
        kE2m1fn(e2m1fn, 0), kE2m3fn(e2m3fn, 0), kE3m2fn(e3m2fn, 0);
    if (format == e4m3fn && first == kFirst<e4m3fn>) return &kE4m3fn;
    if (format == e5m2 && first == kFirst<e5m2>) return &kE5m2;
    if (first != 0) return nullptr;
    if (format == e2m1fn) return &kE2m1fn;
    if (format == e2m3fn) return &kE2m3fn;
    return format == e3m2fn ? &kE3m2fn : nullptr;
  }
  // The first entry of the shifted kernel's table: the specials.
  template <const Format& kFormat>
  static constexpr std::uint32_t kFirst = kFormat.max_field() + 1;

  std::optional<Table32<Target>> made_{};
  const Table32<Target>* table_ = nullptr;
};

template <typename Target>
struct TablePlanes {
  static bool fits(const Format& format) {
    return format.magnitude_bits() <= 5 && format.nan != Nan::negative_zero &&
           !format.twos_complement;
  }

  uint8x16x2_t low_table, high_table;
  uint8x16_t field_mask;
  int8x16_t sign_shift;

  explicit TablePlanes(const Format& format) : TablePlanes(format, TableOf<Target>(format, 0)) {}
  // Of a format that is known: a table that is a constant.
  template <const Format& kFormat>
  static TablePlanes of() {
    constexpr Format kCopy = kFormat;  // a reference to the constant itself would be a symbol
    static constexpr Table32<Target> kTable(kCopy, 0);
    return TablePlanes(kCopy, &kTable);
  }
  template <typename Pointer>
  TablePlanes(const Format& format, const Pointer& table)
      : low_table(table->low()),
        high_table(table->high()),
        field_mask(vdupq_n_u8(static_cast<std::uint8_t>(format.magnitude_mask()))),
        sign_shift(vdupq_n_s8(static_cast<std::int8_t>(8 - format.bits()))) {}

  void lift() {
    for (int i = 0; i < 2; ++i) high_table.val[i] = lifted(low_table.val[i], high_table.val[i]);
  }
  [[gnu::always_inline]] Planes operator()(uint8x16_t code) const {
    const uint8x16_t field = vandq_u8(code, field_mask), sign = vshlq_u8(code, sign_shift);
    return {vqtbl2q_u8(low_table, field),
            vbslq_u8(vdupq_n_u8(0x80), sign, vqtbl2q_u8(high_table, field))};
  }
};

template <typename Target, int kMantissa>
struct ShiftedPlanes {
  static constexpr int kUp = Target::kMantissa - kMantissa;  // 4 to 9

  static std::uint32_t specials(const Format& format) {
    return format.magnitude_mask() - format.max_field();
  }
  static bool fits(const Format& format) {
    const bool even_rebias = Target::kMantissa != 7 || (Target::kBias - format.bias) % 2 == 0;
    const std::uint32_t entries = specials(format) + (1u << format.mantissa_bits);
    return format.bits() == 8 && format.nan != Nan::negative_zero && even_rebias && entries <= 16;
  }

  uint8x16_t first, base, low_table, high_table;

  explicit ShiftedPlanes(const Format& format)
      : ShiftedPlanes(format, TableOf<Target>(format, format.max_field() + 1)) {}
  // Of a format that is known: a table that is a constant.
  template <const Format& kFormat>
  static ShiftedPlanes of() {
    constexpr Format kCopy = kFormat;  // a reference to the constant itself would be a symbol
    static constexpr Table32<Target> kTable(kCopy, kCopy.max_field() + 1);
    return ShiftedPlanes(kCopy, &kTable);
  }
  template <typename Pointer>
  ShiftedPlanes(const Format& format, const Pointer& table)
      : first(vdupq_n_u8(static_cast<std::uint8_t>(specials(format)))) {
    const int rebias = Target::kBias - format.bias;
    base = vdupq_n_u8(static_cast<std::uint8_t>(Target::kMantissa == 7 ? rebias / 2 : rebias * 4));
    low_table = table->low().val[0];
    high_table = table->high().val[0];
  }

  void lift() {
    base = vaddq_u8(base, vdupq_n_u8(kLift / 2));
    high_table = lifted(low_table, high_table);
  }
  [[gnu::always_inline]] Planes operator()(uint8x16_t code) const {
    const uint8x16_t field_mask = vdupq_n_u8(0x7F), field = vandq_u8(code, field_mask);
    const uint8x16_t index = vandq_u8(vaddq_u8(code, first), field_mask);
    Planes planes{vdupq_n_u8(0), vdupq_n_u8(0)};
    if constexpr (kUp < 8) {
      planes.low = vshlq_n_u8(code, kUp);
      planes.high = vaddq_u8(vshrq_n_u8(field, 8 - kUp), base);
    } else {
      planes.high = vaddq_u8(vshlq_n_u8(field, kUp - 8), base);
    }
    planes.low = vqtbx1q_u8(planes.low, low_table, index);
    planes.high = vbslq_u8(vdupq_n_u8(0x80), code, vqtbx1q_u8(planes.high, high_table, index));
    return planes;
  }
};

template <typename Target>
struct GeneralConstants {
  uint8x16_t low_table, high_table;  // results of fields 0 .. 15
  uint8x16_t field_mask, carry, high_base, special;
  int8x16_t sign_shift;

  explicit GeneralConstants(const Format& format) {
    std::uint8_t low[16], high[16];
    for (std::uint32_t field = 0; field < 16; ++field) {
      const std::uint32_t bits = target_bits<Target>(format, field);
      low[field] = static_cast<std::uint8_t>(bits);
      high[field] = static_cast<std::uint8_t>(bits >> 8);
    }
    low_table = vld1q_u8(low);
    high_table = vld1q_u8(high);
    field_mask = vdupq_n_u8(static_cast<std::uint8_t>(format.magnitude_mask()));
    const int rebias = Target::kBias - format.bias;
    // An odd rebias has half of a high byte's unit in it: it is added to the field before the
    // shifts.
    const bool odd = Target::kMantissa == 7 && (rebias & 1) != 0;
    carry = vdupq_n_u8(static_cast<std::uint8_t>(odd ? 1u << format.mantissa_bits : 0));
    const int base = Target::kMantissa == 7 ? (rebias - (odd ? 1 : 0)) / 2 : rebias * 4;
    high_base = vdupq_n_u8(static_cast<std::uint8_t>(base));
    special = vdupq_n_u8(static_cast<std::uint8_t>(format.max_field() + 1));
    sign_shift = vdupq_n_s8(static_cast<std::int8_t>(8 - format.bits()));
  }
};

template <typename Target, int kMantissa, Nan kNan>
[[gnu::always_inline]] inline Planes general_planes(const GeneralConstants<Target>& k,
                                                    uint8x16_t code) {
  constexpr int kUp = Target::kMantissa - kMantissa;
  constexpr std::uint8_t kNanLow = Target::kNan & 0xFF, kNanHigh = Target::kNan >> 8;
  constexpr std::uint8_t kInfLow = Target::kInf & 0xFF, kInfHigh = Target::kInf >> 8;
  const uint8x16_t field = vandq_u8(code, k.field_mask);
  const uint8x16_t shifted = vaddq_u8(field, k.carry);
  Planes planes{vdupq_n_u8(0), vdupq_n_u8(0)};
  if constexpr (kUp < 8) {
    planes.low = vshlq_n_u8(shifted, kUp);
    planes.high = vsraq_n_u8(k.high_base, shifted, 8 - kUp);
  } else {
    planes.high = vaddq_u8(vshlq_n_u8(shifted, kUp - 8), k.high_base);
  }
  planes.low = vqtbx1q_u8(planes.low, k.low_table, field);
  planes.high = vqtbx1q_u8(planes.high, k.high_table, field);
  const uint8x16_t sign = vshlq_u8(code, k.sign_shift);
  const uint8x16_t sign_bit = vdupq_n_u8(0x80);
  if constexpr (kNan == Nan::negative_zero) {
    const uint8x16_t is_nan = vceqq_u8(sign, sign_bit);
    planes.high = vbslq_u8(is_nan, vdupq_n_u8(kNanHigh), vbslq_u8(sign_bit, sign, planes.high));
    planes.low = vbslq_u8(is_nan, vdupq_n_u8(kNanLow), planes.low);
    return planes;
  }
  if constexpr (kNan == Nan::all_ones) {
    const uint8x16_t is_nan = vceqq_u8(field, k.special);
    planes.high = vbslq_u8(is_nan, vdupq_n_u8(kNanHigh), planes.high);
    planes.low = vbslq_u8(is_nan, vdupq_n_u8(kNanLow), planes.low);
  }
  if constexpr (kNan == Nan::ieee) {
    const uint8x16_t is_special = vcgeq_u8(field, k.special), is_inf = vceqq_u8(field, k.special);
    planes.high = vbslq_u8(is_special, vbslq_u8(is_inf, vdupq_n_u8(kInfHigh), vdupq_n_u8(kNanHigh)),
                           planes.high);
    planes.low = vbslq_u8(is_special, vbslq_u8(is_inf, vdupq_n_u8(kInfLow), vdupq_n_u8(kNanLow)),
                          planes.low);
  }
  planes.high = vbslq_u8(sign_bit, sign, planes.high);
  return planes;
}

}  // namespace
}  // namespace octavo::cpu
