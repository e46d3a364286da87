// Decoding by byte planes (decode_planes.h): sixteen codes at a time, to 16-bit results, or through
// them to f32 and f64.
#include <arm_neon.h>

#include <cstring>
#include <utility>

#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/neon.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/portable/portable.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

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

// Loading codes is slower than storing results: they are prefetched a kilobyte ahead.
constexpr std::int64_t kAhead = 1024;

// `planes_of` decodes sixteen codes into planes.
template <typename Value, typename PlanesOf>
inline void decode_run(const void* codes, void* values, std::int64_t n, PlanesOf&& planes_of) {
  const auto* __restrict from = static_cast<const std::uint8_t*>(codes);
  auto* __restrict to = static_cast<Value*>(values);
  std::int64_t done = 0;
  // Four groups interleaved: otherwise a group's stores wait for its own arithmetic.
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

// Vectors of integers, which the compiler makes NEON of.
void neon_rank(const RankedTiles& job, std::uint32_t* found) { kPortableIsa.rank(job, found); }

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
                   .amax16 = neon_amax16,
                   .fp4 = neon_fp4,
                   .fp4_searches = true,
                   .decode_scaled = neon_decode_scaled,
                   .rank = neon_rank,
                   .fp4_squares = neon_fp4_squares,
                   .row_error = neon_row_error,
                   .row_error_reads_codes = true,
                   .products = &kPortableProducts};

const Kernels kNeonKernels = make_kernels<kNeonIsa, neon_gemm, neon_attention>(
    "cpu/neon", "NEON, as every aarch64 CPU has it");

}  // namespace octavo::cpu
