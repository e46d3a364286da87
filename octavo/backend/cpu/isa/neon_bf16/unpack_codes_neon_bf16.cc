// Codes of B to panels of bf16 for BFMMLA, [k / 4][12 columns][4]: sixteen of them, four columns,
// are decoded by byte planes and stored. Packed weights are in that order; rows are first brought
// into it as words of four bytes, two operations for sixteen codes.
//
// The scales of MX blocks and NVFP4 tiles are multiplied in, which is exact (gemm_scale_range.h):
// powers of two cost nothing where all codes are normal numbers (normal_words.h), else a saturating
// subtraction from exponents, 2 operations for sixteen codes (4 where zeros have a sign); others
// are multiplied in f32, whose upper halves are the result, 10 operations.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/isa/neon_bf16/normal_words.h"
#include "octavo/backend/cpu/isa/neon_bf16/packed_codes.h"
#include "octavo/backend/cpu/isa/neon_bf16/run_scales.h"

namespace octavo::cpu {
namespace {

// Eight bf16 of two columns, times their scales.
[[gnu::always_inline]] inline uint16x8_t times(uint16x8_t values, float32x4_t first,
                                               float32x4_t second) {
  const uint16x8_t zero = vdupq_n_u16(0);
  const float32x4_t low = vreinterpretq_f32_u16(vzip1q_u16(zero, values)),
                    high = vreinterpretq_f32_u16(vzip2q_u16(zero, values));
  return vuzp2q_u16(vreinterpretq_u16_f32(vmulq_f32(low, first)),
                    vreinterpretq_u16_f32(vmulq_f32(high, second)));
}

// Scaling policies of the decode loop: `codes` before a vector of codes is decoded, `pair` on each
// vector of bf16, two columns, before it is stored.
struct AsTheyAre {
  [[gnu::always_inline]] uint8x16_t codes(uint8x16_t found) { return found; }
  [[gnu::always_inline]] uint16x8_t pair(uint16x8_t found, int) { return found; }
};
struct TimesValues {
  float32x4_t scale[kPairCols];
  [[gnu::always_inline]] uint8x16_t codes(uint8x16_t found) { return found; }
  [[gnu::always_inline]] uint16x8_t pair(uint16x8_t found, int at) {
    return times(found, scale[2 * at], scale[2 * at + 1]);
  }
};
// kFormat has codes of a byte with a zero of either sign; `most` is the largest magnitude, to find
// Inf and NaN, which have no exponent to subtract from.
template <const Format& kFormat, bool kNibbles>
struct TimesPowers {
  static constexpr std::uint32_t kSpecial = kFormat.max_field() + 1;
  static constexpr bool kHasSpecials = kSpecial <= kFormat.magnitude_mask();
  uint16x8_t amount[kPairCols / 2];  // below kLift
  uint8x16_t most = vdupq_n_u8(0);

  explicit TimesPowers(const uint16x8_t (&power)[kPairCols / 2]) {
    for (int pair = 0; pair < kPairCols / 2; ++pair)
      amount[pair] = vsubq_u16(vdupq_n_u16(kLift << 7), power[pair]);
  }
  [[gnu::always_inline]] uint8x16_t codes(uint8x16_t found) {
    if constexpr (kNibbles) return found;
    constexpr auto kMagnitude = static_cast<std::uint8_t>(kFormat.magnitude_mask()),
                   kSign = static_cast<std::uint8_t>(kFormat.sign_mask());
    if constexpr (kHasSpecials) most = vmaxq_u8(most, vandq_u8(found, vdupq_n_u8(kMagnitude)));
    return vbicq_u8(found, vceqq_u8(found, vdupq_n_u8(kSign)));
  }
  [[gnu::always_inline]] uint16x8_t pair(uint16x8_t found, int at) {
    return vqsubq_u16(found, amount[at]);
  }
  [[nodiscard]] bool any_special() const { return kHasSpecials && vmaxvq_u8(most) >= kSpecial; }
};

// `n` elements of K.
template <typename In, typename PlanesOf, typename Scaled>
[[gnu::always_inline]] inline void unpack(const std::uint8_t* from, std::int64_t n,
                                          const PlanesOf& planes_of, Scaled& scaled,
                                          std::uint16_t* to) {
  for (std::int64_t k = 0; k < n; k += In::kSteps * kBf16Step) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      __builtin_prefetch(from + kAhead);
      uint8x16_t codes[In::kSteps];
      In::load(from, codes);
      from += 16;
#pragma GCC unroll 2
      for (int step = 0; step < In::kSteps; ++step) {
        const Planes planes = planes_of(scaled.codes(codes[step]));
        const uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(planes.low, planes.high)),
                         high = vreinterpretq_u16_u8(vzip2q_u8(planes.low, planes.high));
        std::uint16_t* const at = to + (step * kVectors + v) * kCodes;
        vst1q_u16(at, scaled.pair(low, 2 * v));
        vst1q_u16(at + 8, scaled.pair(high, 2 * v + 1));
      }
    }
    to += In::kSteps * kVectors * kCodes;
  }
}

// The same for codes that are all normal numbers; false where they are not.
template <const Format& kFormat>
[[gnu::always_inline]] inline bool unpack_normal(const std::uint8_t* from, std::int64_t n,
                                                 const uint16x8_t (&base)[kPairCols / 2],
                                                 std::uint16_t* to) {
  using Words = NormalWords<kFormat>;
  Words words;
  for (std::int64_t k = 0; k < n; k += kBf16Step) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      __builtin_prefetch(from + kAhead);
      const uint8x16_t codes = vld1q_u8(from);
      from += 16;
      words.see(codes);
      vst1q_u16(to, Words::low(codes, base[2 * v]));
      vst1q_u16(to + 8, Words::high(codes, base[2 * v + 1]));
      to += kCodes;
    }
  }
  return words.all_normal();
}

template <const Format& kFormat, typename PlanesOf, typename In>
struct Unpack {
  using Powers = TimesPowers<kFormat, std::is_same_v<PlanesOf, NibblePlanes>>;
  static constexpr bool kNormal = NormalWords<kFormat>::kFits;
  static constexpr std::uint16_t kBase = NormalWords<kFormat>::kBase;

  PlanesOf planes, lifted_planes;

  Unpack() : planes(PlanesOf::template of<kFormat>()), lifted_planes(planes) {
    lifted_planes.lift();
  }

  // Elements from k on, of words that begin there.
  [[gnu::always_inline]] void operator()(const PackJob& job, const RunScales& scales,
                                         const std::uint8_t* words, std::int64_t k,
                                         std::int64_t n) const {
    const std::int64_t last = k + n, run = job.is_scaled() ? job.run : last;
    auto* to = reinterpret_cast<std::uint16_t*>(job.panel) + k * kPairCols;
    while (k < last) {
      const std::int64_t end = (k / run + 1) * run < last ? (k / run + 1) * run : last;
      uint16x8_t power[kPairCols / 2] = {};
      const bool has_powers = scales.powers(k / run, power);
      uint16x8_t base[kPairCols / 2];
      for (int pair = 0; pair < kPairCols / 2; ++pair)
        base[pair] = vaddq_u16(vdupq_n_u16(kBase), power[pair]);
      while (k < end) {
        const std::int64_t some = !kNormal || end - k < kNormalPiece ? end - k : kNormalPiece;
        if (!kNormal || (job.is_scaled() && !has_powers) ||
            !unpack_normal<kFormat>(words, some, base, to))
          any_codes(job, scales, k / run, has_powers, power, words, some, to);
        k += some;
        words += some * kPairCols / In::kPerByte;
        to += some * kPairCols;
      }
    }
  }
  // Of one run.
  [[gnu::always_inline]] void any_codes(const PackJob& job, const RunScales& scales,
                                        std::int64_t run, bool has_powers,
                                        const uint16x8_t (&power)[kPairCols / 2],
                                        const std::uint8_t* words, std::int64_t n,
                                        std::uint16_t* to) const {
    if (!job.is_scaled()) {
      AsTheyAre as_they_are;
      return unpack<In>(words, n, planes, as_they_are, to);
    }
    if (has_powers) {
      Powers powers(power);
      unpack<In>(words, n, lifted_planes, powers, to);
      if (!powers.any_special()) return;
    }
    TimesValues values;
    scales.values(run, values.scale);
    unpack<In>(words, n, planes, values, to);
  }

  static void run(const Format&, const PackJob& job) {
    const Unpack one;
    const RunScales scales(job);
    if (job.words != nullptr) return one(job, scales, job.words, 0, job.n);
    alignas(64) std::uint8_t words[kRowPiece * kPairCols];
    constexpr std::int64_t kPiece = kRowPiece * In::kPerByte;
    for (std::int64_t k = 0; k < job.n; k += kPiece) {
      const std::int64_t n = job.n - k < kPiece ? job.n - k : kPiece;
      gather_words(job.rows, k / In::kPerByte, n / In::kPerByte, words);
      one(job, scales, words, k, n);
    }
  }
};

}  // namespace

PackCodes neon_bf16_unpack_codes(const PackedCodes& codes) {
  return codes.side == PanelOf::b ? with_packed_codes<PackCodes, Unpack>(codes) : nullptr;
}

}  // namespace octavo::cpu
