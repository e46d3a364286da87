// NVFP4 quantization: tiles of sixteen in E2M1 with e4m3 scales and one f32 scale per tensor.
// Amaxes, scales and codes of a batch of tiles that stays in L1.
//
// The order of operations is tile_scale's: two quotients, an e4m3, a product and a reciprocal. Four
// tiles are processed at once, and the divider works in parallel: the first quotients are computed
// while the next amaxes are. No branch or address depends on data.
#include <arm_neon.h>

#include <bit>
#include <cstring>

#include "octavo/backend/cpu/isa/neon/fp4_codes.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/tile_amax.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/named_formats.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

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
[[gnu::always_inline]] inline Fp4Bytes scaled_bytes(const std::byte* from, float factor) {
  float32x4_t x[4];
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
  for (int i = 0; i < 4; ++i) x[i] = vmulq_n_f32(x[i], factor);
  return fp4_bytes(x);
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
