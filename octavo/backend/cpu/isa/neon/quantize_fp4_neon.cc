// NVFP4 quantization: tiles of sixteen in E2M1 with e4m3 scales and one f32 scale per tensor.
// Amaxes, scales and codes of a batch of tiles that stays in L1.
//
// The order of operations is tile_scale's: two quotients, an e4m3, a product and a reciprocal. Four
// tiles are processed at once, and the divider works in parallel: the first quotients are computed
// while the next amaxes are. No branch or address depends on data, but in the search of policy mse.
#include <arm_neon.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "octavo/backend/cpu/isa/neon/fp4_search.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/tile_amax.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/named_formats.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

// Sixteen f32 to E2M1, rounded to nearest even and saturating: 0 .5 1 1.5 2 3 4 6.
//
// The exponent and the first mantissa bit of a value choose one of sixteen cells (and what lies
// above them all), each of which has at most one point where the code changes: so a code is a table
// of cells, less one below a second table's point. What tells a tie from its neighbours is the rest
// of the mantissa, of which a byte does: seven bits, and one that says whether anything follows.
//
//   floor + ceil of an f32 to its upper half = twice the upper half, plus one where not exact.
//
// Everything after the narrowing is done on sixteen bytes at once: 20 operations and the scaling's
// 4. NaN comes out as some code; no branch or address depends on data.
struct Fp4Tables {
  // Cells, four to each pair of binades: up to 2^-3, then from 2^-3, 2^-1 and 2^1 on. Beyond them
  // tables give 0. Codes are counted down from 7, so that this is the largest.
  static constexpr std::uint8_t kDown[16] = {7, 7, 7, 7, 7, 7, 6, 6, 6, 5, 4, 3, 2, 1, 0, 0};
  // Mantissas below take the next code down: ties to even at 1/4, at 5/4 and 7/4 times 1, 2 and 4.
  static constexpr std::uint8_t kFrom[16] = {0, 0, 0,    0,    0,    0,    0x01, 0,
                                             0, 0, 0x41, 0xC0, 0x41, 0xC0, 0x41, 0};
  static constexpr std::uint8_t kBelow = 2 * 61;  // twice the upper seven bits of 2^-4's exponent
  static constexpr std::uint8_t kSign = 0x08;
  static constexpr std::uint8_t kFlip = 0x77;  // undoes the counting down of two packed codes

  uint8x16_t down = vld1q_u8(kDown), from = vld1q_u8(kFrom);
};

// Sixteen values, taken apart into bytes.
struct Fp4Bytes {
  uint8x16_t tops;      // the sign and the exponent's upper bits
  uint8x16_t lows;      // the exponent's last bit and the mantissa's first
  uint8x16_t mantissa;  // with its last bit set where anything follows
};

[[gnu::always_inline]] inline Fp4Bytes fp4_bytes(const float32x4_t values[4]) {
  const uint32x4_t almost = vdupq_n_u32(0xFFFF);
  uint8x16_t floor[2], ceil[2];
  for (int i = 0; i < 2; ++i) {
    const uint32x4_t a = vreinterpretq_u32_f32(values[2 * i]),
                     b = vreinterpretq_u32_f32(values[2 * i + 1]);
    floor[i] = vreinterpretq_u8_u16(vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
    ceil[i] = vreinterpretq_u8_u16(vaddhn_high_u32(vaddhn_u32(a, almost), b, almost));
  }
  const uint8x16_t lows = vuzp1q_u8(floor[0], floor[1]);
  return {vuzp2q_u8(floor[0], floor[1]), lows, vaddq_u8(lows, vuzp1q_u8(ceil[0], ceil[1]))};
}

// Codes counted down, with their signs; step by step for several groups, because the core's reorder
// window is too short to interleave them itself.
template <int kGroups>
[[gnu::always_inline]] inline void fp4_codes_down(const Fp4Tables& tables, const Fp4Bytes* bytes,
                                                  uint8x16_t* codes) {
  uint8x16_t cell[kGroups], lower[kGroups];
  for (int g = 0; g < kGroups; ++g) cell[g] = vaddq_u8(bytes[g].tops, bytes[g].tops);
  for (int g = 0; g < kGroups; ++g) cell[g] = vqsubq_u8(cell[g], vdupq_n_u8(Fp4Tables::kBelow));
  for (int g = 0; g < kGroups; ++g) cell[g] = vqaddq_u8(cell[g], cell[g]);
  for (int g = 0; g < kGroups; ++g) cell[g] = vsriq_n_u8(cell[g], bytes[g].lows, 6);
  for (int g = 0; g < kGroups; ++g) lower[g] = vqtbl1q_u8(tables.from, cell[g]);
  for (int g = 0; g < kGroups; ++g) lower[g] = vcgtq_u8(lower[g], bytes[g].mantissa);
  for (int g = 0; g < kGroups; ++g) codes[g] = vqtbl1q_u8(tables.down, cell[g]);
  for (int g = 0; g < kGroups; ++g) codes[g] = vsubq_u8(codes[g], lower[g]);
  for (int g = 0; g < kGroups; ++g)
    codes[g] = vbslq_u8(vdupq_n_u8(Fp4Tables::kSign), vshrq_n_u8(bytes[g].tops, 4), codes[g]);
}

// Two to a byte, the first one below.
[[gnu::always_inline]] inline uint8x16_t fp4_packed(uint8x16_t first, uint8x16_t second) {
  const uint8x16_t pairs = vsliq_n_u8(vuzp1q_u8(first, second), vuzp2q_u8(first, second), 4);
  return veorq_u8(pairs, vdupq_n_u8(Fp4Tables::kFlip));
}

constexpr std::int64_t kTile = kFp4Tile, kFour = 4 * kTile;
constexpr std::int64_t kBatch = 64;  // tiles

struct Batch {
  alignas(64) std::uint32_t amax[kBatch];
  alignas(64) float quotient[kBatch], factor[kBatch];
  alignas(64) std::int64_t keep[kBatch];  // all ones, or zero where the tile is poisoned
};

// e4m3 of numbers that are not negative, by an addition whose last place is the format's: the sum
// has the mantissa in its last bits and the exponent, shifted onto it, above them.
struct ScaleCodes {
  static constexpr int kShift = 23 - e4m3fn.mantissa_bits;
  static constexpr std::uint32_t kSmallest = static_cast<std::uint32_t>(127 + e4m3fn.min_exponent())
                                             << 23;
  // Brings what is below the field to zero, modulo 256: even, so that ties stay what they are.
  static constexpr std::uint32_t kBase =
      256 -
      ((static_cast<std::uint32_t>(127 + kShift + e4m3fn.min_exponent()) << e4m3fn.mantissa_bits) &
       255);
  static_assert(kBase % 2 == 0);

  [[gnu::always_inline]] static uint32x4_t of(uint32x4_t wanted) {
    const uint32x4_t most = vdupq_n_u32(std::bit_cast<std::uint32_t>(448.0F));
    const uint32x4_t bits = vminq_u32(wanted, most);
    const uint32x4_t power =
        vmaxq_u32(vandq_u32(bits, vdupq_n_u32(0x7F800000u)), vdupq_n_u32(kSmallest));
    const uint32x4_t big = vaddq_u32(power, vdupq_n_u32((std::uint32_t{kShift} << 23) + kBase));
    const uint32x4_t sum =
        vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(bits), vreinterpretq_f32_u32(big)));
    return vandq_u32(vsraq_n_u32(sum, sum, kShift), vdupq_n_u32(0xFF));
  }
  // A code moved to where f32 has its exponent, times a power of two: exact.
  [[gnu::always_inline]] static float32x4_t value(uint32x4_t code) {
    return vmulq_n_f32(vreinterpretq_f32_u32(vshlq_n_u32(code, kShift)),
                       f32_power_of_two(127 - e4m3fn.bias));
  }
};

template <DType kSource>
[[gnu::always_inline]] inline void find_quotients(const std::byte* from, std::int64_t tiles,
                                                  Batch& batch) {
  const float32x4_t max = vdupq_n_f32(6.0F);
  for (std::int64_t t = 0; t < tiles; t += 4, from += kFour * element_bytes(kSource)) {
    const uint32x4_t amax = four_amaxes<kSource>(from);
    vst1q_u32(batch.amax + t, amax);
    vst1q_f32(batch.quotient + t, vdivq_f32(vreinterpretq_f32_u32(amax), max));
  }
}

// The scales of zero tiles and poisoned tiles are inserted afterwards.
[[gnu::always_inline]] inline void make_scales(float tensor_scale, std::int64_t tiles,
                                               std::uint32_t zero_code, std::uint32_t poison_code,
                                               Batch& batch, std::uint8_t* scales) {
  const float32x4_t tensor = vdupq_n_f32(tensor_scale);
  const uint32x4_t largest = vdupq_n_u32(std::bit_cast<std::uint32_t>(kMaxFloat));
  for (std::int64_t t = 0; t < tiles; t += 4) {
    const uint32x4_t amax = vld1q_u32(batch.amax + t);
    const uint32x4_t poisoned = vcgeq_u32(amax, vdupq_n_u32(0x7F800000u));
    const float32x4_t wanted = vdivq_f32(vld1q_f32(batch.quotient + t), tensor);
    const uint32x4_t code =
        vmaxq_u32(ScaleCodes::of(vreinterpretq_u32_f32(wanted)), vdupq_n_u32(1));
    const float32x4_t scale = vmulq_f32(ScaleCodes::value(code), tensor);
    const uint32x4_t factor = vreinterpretq_u32_f32(vdivq_f32(vdupq_n_f32(1.0F), scale));
    vst1q_f32(batch.factor + t, vreinterpretq_f32_u32(vminq_u32(factor, largest)));
    const uint32x4_t stored = vbslq_u32(poisoned, vdupq_n_u32(poison_code),
                                        vbslq_u32(vceqzq_u32(amax), vdupq_n_u32(zero_code), code));
    const uint8x8_t bytes = vreinterpret_u8_u16(vmovn_u32(stored));
    const std::uint32_t four = vget_lane_u32(vreinterpret_u32_u8(vuzp1_u8(bytes, bytes)), 0);
    std::memcpy(scales + t, &four, sizeof four);
    const int32x4_t keep = vreinterpretq_s32_u32(vmvnq_u32(poisoned));
    vst1q_s64(batch.keep + t, vmovl_s32(vget_low_s32(keep)));
    vst1q_s64(batch.keep + t + 2, vmovl_high_s32(keep));
  }
}

template <DType kSource>
[[gnu::always_inline]] inline void load_tile(const std::byte* from, float32x4_t x[4]) {
  if constexpr (kSource == DType::f32) {
    const auto* p = reinterpret_cast<const float*>(from);
    for (int i = 0; i < 4; ++i) x[i] = vld1q_f32(p + 4 * i);
  } else {
    const uint16x8_t zero = vdupq_n_u16(0);
    for (int i = 0; i < 2; ++i) {
      const uint16x8_t halves = vld1q_u16(reinterpret_cast<const std::uint16_t*>(from) + 8 * i);
      x[2 * i] = vreinterpretq_f32_u16(vzip1q_u16(zero, halves));
      x[2 * i + 1] = vreinterpretq_f32_u16(vzip2q_u16(zero, halves));
    }
  }
}

template <DType kSource>
[[gnu::always_inline]] inline Fp4Bytes scaled_bytes(const std::byte* from, float factor) {
  float32x4_t x[4];
  load_tile<kSource>(from, x);
  for (int i = 0; i < 4; ++i) x[i] = vmulq_n_f32(x[i], factor);
  return fp4_bytes(x);
}

// Policy mse: other codes than those of the amaxes, where they are better. Rough sums of all tiles
// come first: the chain of operations from a sum to a code is long.
template <DType kSource>
[[gnu::noinline]] void search_scales(const Fp4Tiles& job, const std::byte* from, std::int64_t tiles,
                                     Batch& batch, std::uint8_t* scales) {
  constexpr std::int64_t kStep = kTile * element_bytes(kSource);
  alignas(64) std::int32_t rough[kBatch][12];
  const uint8x16x2_t grid = fp4_grid();
  const auto magnitudes_of = [&](std::int64_t t, Fp4Floats magnitudes[4]) {
    float32x4_t x[4];
    load_tile<kSource>(from + t * kStep, x);
    for (int i = 0; i < 4; ++i) magnitudes[i] = vabsq_f32(x[i]);
  };
  for (std::int64_t t = 0; t < tiles; ++t) {
    if (!fp4_is_ordinary(job.tensor_scale, scales[t])) continue;
    Fp4Floats magnitudes[4];
    magnitudes_of(t, magnitudes);
    fp4_rough_sums(magnitudes, job.searched[scales[t] - kFitCodesBelow].factor, scales[t], grid,
                   rough[t]);
  }
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::uint32_t own = scales[t];
    if (batch.amax[t] == 0 || batch.amax[t] >= 0x7F800000u) continue;
    const std::uint32_t places = fp4_is_ordinary(job.tensor_scale, own)
                                     ? fp4_likely_codes(rough[t], own)
                                     : NeonFp4Search::kAllPlaces;
    std::uint32_t code =
        own + static_cast<std::uint32_t>(std::countr_zero(places)) - kFitCodesBelow;
    if ((places & (places - 1)) != 0) {  // more than one
      Fp4Floats magnitudes[4];
      magnitudes_of(t, magnitudes);
      code = fp4_least_error(magnitudes, job.searched, own);
    }
    scales[t] = static_cast<std::uint8_t>(code);
    batch.factor[t] = job.searched[code].factor;
  }
}

template <DType kSource>
[[gnu::always_inline]] inline void make_codes(const std::byte* from, std::int64_t tiles,
                                              std::int64_t ahead, const Batch& batch,
                                              std::uint8_t* codes) {
  constexpr std::int64_t kStep = kTile * element_bytes(kSource);
  const Fp4Tables tables;
  for (std::int64_t t = 0; t < tiles; t += 4, from += 4 * kStep, codes += 2 * kTile) {
    for (std::int64_t line = 0; line < 4 * kStep; line += 64)
      __builtin_prefetch(from + ahead + line);
    Fp4Bytes bytes[4];
    uint8x16_t down[4];
    for (int i = 0; i < 4; ++i)
      bytes[i] = scaled_bytes<kSource>(from + i * kStep, batch.factor[t + i]);
    fp4_codes_down<4>(tables, bytes, down);
    for (int i = 0; i < 4; i += 2) {
      const uint8x16_t keep = vreinterpretq_u8_s64(vld1q_s64(batch.keep + t + i));
      vst1q_u8(codes + i * kTile / 2, vandq_u8(fp4_packed(down[i], down[i + 1]), keep));
    }
  }
}

template <DType kSource>
void fp4_rows(const Fp4Tiles& job, const void* values, std::uint8_t* codes, std::uint8_t* scales,
              std::int64_t n) {
  constexpr std::int64_t kBytes = element_bytes(kSource);
  // The next batch is prefetched while codes of this one are made.
  constexpr std::int64_t kAhead = kBatch * kTile * kBytes;
  const FpEnvGuard guard;
  const ScaleSpec spec{.format = ScaleFormat::e4m3_f32};
  const std::uint32_t zero = zero_scale(spec, job.tensor_scale).bits,
                      poison = poisoned_scale(spec.format).bits;
  Batch batch;
  // Tiles by fours.
  const auto some_tiles = [&](const std::byte* from, std::int64_t tiles, std::int64_t ahead,
                              std::uint8_t* to, std::uint8_t* scale)
      __attribute__((always_inline)) {
    find_quotients<kSource>(from, tiles, batch);
    make_scales(job.tensor_scale, tiles, zero, poison, batch, scale);
    if (job.searched != nullptr) search_scales<kSource>(job, from, tiles, batch, scale);
    make_codes<kSource>(from, tiles, ahead, batch, to);
  };
  const auto* from = static_cast<const std::byte*>(values);
  std::int64_t left = n / kFour * 4;
  while (left > 0) {
    const std::int64_t tiles = left < kBatch ? left : kBatch;
    some_tiles(from, tiles, kAhead, codes, scales);
    left -= tiles;
    from += tiles * kTile * kBytes;
    codes += tiles * kTile / 2;
    scales += tiles;
  }
  const std::int64_t rest = n % kFour;
  if (rest > 0) {
    alignas(16) std::byte staged[kFour * kBytes] = {};
    alignas(16) std::uint8_t out[kFour / 2], bytes[4];
    std::memcpy(staged, from, static_cast<std::size_t>(rest * kBytes));
    some_tiles(staged, 4, 0, out, bytes);
    std::memcpy(codes, out, static_cast<std::size_t>((rest + 1) / 2));
    std::memcpy(scales, bytes, static_cast<std::size_t>((rest + kTile - 1) / kTile));
  }
}

}  // namespace

Fp4Rows neon_fp4(DType source) {
  if (source == DType::f32) return fp4_rows<DType::f32>;
  if (source == DType::bf16) return fp4_rows<DType::bf16>;
  return nullptr;
}

}  // namespace octavo::cpu
