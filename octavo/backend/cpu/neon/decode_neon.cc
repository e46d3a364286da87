// Decoding by byte planes: the high and the low bytes of sixteen 16-bit results are worked out
// apart, each in one vector, and interleaved at the end. bf16 is such a result, f16 is another, and
// f32 is a bf16 with two zero bytes below. Three ways to the planes:
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
// Tables stand in registers: no address depends on data.
#include <arm_neon.h>

#include <bit>
#include <cstring>
#include <utility>

#include "octavo/backend/cpu/neon/neon.h"
#include "octavo/backend/cpu/neon/neon_internal.h"
#include "octavo/backend/cpu/portable/portable.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

struct Planes {
  uint8x16_t low, high;
};

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
std::uint16_t target_bits(const Format& format, std::uint32_t field) {
  if (is_nan(format, field)) return Target::kNan;
  if (is_inf(format, field)) return Target::kInf;
  return static_cast<std::uint16_t>(encode_value(Target::kFormat, decode(format, field)).code);
}

struct Table32 {
  uint8x16x2_t low, high;

  template <typename EntryOf>
  explicit Table32(EntryOf&& entry_of) {
    std::uint8_t lows[32], highs[32];
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint16_t entry = entry_of(i);
      lows[i] = static_cast<std::uint8_t>(entry);
      highs[i] = static_cast<std::uint8_t>(entry >> 8);
    }
    low = {{vld1q_u8(lows), vld1q_u8(lows + 16)}};
    high = {{vld1q_u8(highs), vld1q_u8(highs + 16)}};
  }
};

template <typename Target>
struct TablePlanes {
  static bool fits(const Format& format) {
    return format.magnitude_bits() <= 5 && format.nan != Nan::negative_zero;
  }

  Table32 table;
  uint8x16_t field_mask;
  int8x16_t sign_shift;

  explicit TablePlanes(const Format& format)
      : table([&](std::uint32_t i) {
          return i <= format.magnitude_mask() ? target_bits<Target>(format, i) : std::uint16_t{0};
        }),
        field_mask(vdupq_n_u8(static_cast<std::uint8_t>(format.magnitude_mask()))),
        sign_shift(vdupq_n_s8(static_cast<std::int8_t>(8 - format.bits()))) {}

  [[gnu::always_inline]] Planes operator()(uint8x16_t code) const {
    const uint8x16_t field = vandq_u8(code, field_mask), sign = vshlq_u8(code, sign_shift);
    return {vqtbl2q_u8(table.low, field),
            vbslq_u8(vdupq_n_u8(0x80), sign, vqtbl2q_u8(table.high, field))};
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
      : first(vdupq_n_u8(static_cast<std::uint8_t>(specials(format)))) {
    const int rebias = Target::kBias - format.bias;
    base = vdupq_n_u8(static_cast<std::uint8_t>(Target::kMantissa == 7 ? rebias / 2 : rebias * 4));
    const Table32 table([&](std::uint32_t i) {
      return target_bits<Target>(format, (i - specials(format)) & format.magnitude_mask());
    });
    low_table = table.low.val[0];
    high_table = table.high.val[0];
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

inline void store16(const Planes& planes, std::uint16_t* to) {
  vst1q_u8(reinterpret_cast<std::uint8_t*>(to), vzip1q_u8(planes.low, planes.high));
  vst1q_u8(reinterpret_cast<std::uint8_t*>(to + 8), vzip2q_u8(planes.low, planes.high));
}

inline void store16(const Planes& planes, float* to) {
  const uint16x8_t a = vreinterpretq_u16_u8(vzip1q_u8(planes.low, planes.high));
  const uint16x8_t b = vreinterpretq_u16_u8(vzip2q_u8(planes.low, planes.high));
  const uint16x8_t zero = vdupq_n_u16(0);
  vst1q_f32(to, vreinterpretq_f32_u16(vzip1q_u16(zero, a)));
  vst1q_f32(to + 4, vreinterpretq_f32_u16(vzip2q_u16(zero, a)));
  vst1q_f32(to + 8, vreinterpretq_f32_u16(vzip1q_u16(zero, b)));
  vst1q_f32(to + 12, vreinterpretq_f32_u16(vzip2q_u16(zero, b)));
}

inline void store16(const Planes& planes, double* to) {
  alignas(16) float narrow[16];
  store16(planes, narrow);
  for (int i = 0; i < 16; i += 2) vst1q_f64(to + i, vcvt_f64_f32(vld1_f32(narrow + i)));
}

// Codes come in more slowly than results go out: they are asked for a kilobyte ahead.
constexpr std::int64_t kAhead = 1024;

// `planes_of` turns sixteen codes into planes.
template <typename Value, typename PlanesOf>
inline void decode_run(const void* codes, void* values, std::int64_t n, PlanesOf&& planes_of) {
  const auto* __restrict from = static_cast<const std::uint8_t*>(codes);
  auto* __restrict to = static_cast<Value*>(values);
  std::int64_t done = 0;
  // Four groups side by side: without that, a group's stores wait for its own arithmetic.
  for (; done + 64 <= n; done += 64) {
    Planes planes[4];
    __builtin_prefetch(from + done + kAhead);
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group)
      planes[group] = planes_of(vld1q_u8(from + done + 16 * group));
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group) store16(planes[group], to + done + 16 * group);
  }
  for (; done + 16 <= n; done += 16) store16(planes_of(vld1q_u8(from + done)), to + done);
  if (done < n) {
    alignas(16) std::uint8_t staged[16] = {};
    alignas(16) Value out[16];
    const auto count = static_cast<std::size_t>(n - done);
    std::memcpy(staged, from + done, count);
    store16(planes_of(vld1q_u8(staged)), out);
    std::memcpy(to + done, out, count * sizeof(Value));
  }
}

template <typename Value, typename PlanesOf>
void decode_by(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  const PlanesOf planes_of(decoder.format);
  decode_run<Value>(codes, values, n, planes_of);
}

template <typename Target, typename Value, int kMantissa, Nan kNan>
void decode_general(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  const GeneralConstants<Target> k(decoder.format);
  decode_run<Value>(codes, values, n, [&](uint8x16_t code) {
    return general_planes<Target, kMantissa, kNan>(k, code);
  });
}

// e8m0fnu in bf16: the code is the exponent. 2^-127 is subnormal (0x0040) and 255 is NaN (0x7FC0):
// both are the plain result with bit 6 set.
template <typename Value>
void decode_e8m0(const Decoder&, const void* codes, void* values, std::int64_t n) {
  decode_run<Value>(codes, values, n, [](uint8x16_t code) {
    const uint8x16_t at_an_end = vcleq_u8(vaddq_u8(code, vdupq_n_u8(1)), vdupq_n_u8(1));
    const uint8x16_t low = vorrq_u8(vshlq_n_u8(code, 7), vandq_u8(at_an_end, vdupq_n_u8(0x40)));
    return Planes{low, vshrq_n_u8(code, 1)};
  });
}

template <typename Target, typename Value, int kMantissa>
DecodeSpan choose_planes(const Format& format) {
  if constexpr (kMantissa >= 1 && kMantissa <= 3) {
    if (ShiftedPlanes<Target, kMantissa>::fits(format))
      return decode_by<Value, ShiftedPlanes<Target, kMantissa>>;
  }
  switch (format.nan) {
    case Nan::none:
      return decode_general<Target, Value, kMantissa, Nan::none>;
    case Nan::ieee:
      return decode_general<Target, Value, kMantissa, Nan::ieee>;
    case Nan::all_ones:
      return decode_general<Target, Value, kMantissa, Nan::all_ones>;
    case Nan::negative_zero:
      return decode_general<Target, Value, kMantissa, Nan::negative_zero>;
  }
  return nullptr;
}

template <typename Target, typename Value>
DecodeSpan choose_mantissa(const Format& format) {
  const int top = static_cast<int>(format.max_field() >> format.mantissa_bits) - format.bias;
  constexpr bool kIsHalf = Target::kMantissa == 10;
  // Normal fields must be normal in the target too, and the table's entries exact.
  const bool fits =
      top <= Target::kBias && (kIsHalf ? format.bias <= 15 : format.min_step_exponent() >= -126);
  if (format.bits() > 8 || !format.is_signed || format.twos_complement || !fits) return nullptr;
  if (TablePlanes<Target>::fits(format)) return decode_by<Value, TablePlanes<Target>>;
  switch (format.mantissa_bits) {
    case 0:
      return choose_planes<Target, Value, 0>(format);
    case 1:
      return choose_planes<Target, Value, 1>(format);
    case 2:
      return choose_planes<Target, Value, 2>(format);
    case 3:
      return choose_planes<Target, Value, 3>(format);
    case 4:
      return choose_planes<Target, Value, 4>(format);
    default:
      return nullptr;
  }
}

template <typename Value>
DecodeSpan choose_decode(const Format& format) {
  return format == e8m0fnu ? decode_e8m0<Value> : choose_mantissa<BfloatTarget, Value>(format);
}

}  // namespace

Counts neon_count(const Encoder& encoder, const void* values, std::int64_t n, std::uint64_t index) {
  return kPortableIsa.count(encoder, values, n, index);
}

DecodeSpan neon_decode(const Decoder& decoder) {
  DecodeSpan chosen = nullptr;
  switch (decoder.target) {
    case DType::f32:
      chosen = choose_decode<float>(decoder.format);
      break;
    case DType::f64:
      chosen = choose_decode<double>(decoder.format);
      break;
    case DType::bf16:
      chosen = choose_decode<std::uint16_t>(decoder.format);
      break;
    case DType::f16:
      chosen = choose_mantissa<HalfTarget, std::uint16_t>(decoder.format);
      break;
    case DType::code:
      break;
  }
  return chosen != nullptr ? chosen : kPortableIsa.decode(decoder);
}

const Isa kNeonIsa{.encode = neon_encode,
                   .decode = neon_decode,
                   .count = neon_count,
                   .encode_scaled = neon_encode_scaled,
                   .mx = neon_mx,
                   .amax16 = neon_amax16};

const Kernels kNeonKernels =
    make_kernels<kNeonIsa>("cpu/neon", "NEON, as every aarch64 CPU has it");

}  // namespace octavo::cpu
