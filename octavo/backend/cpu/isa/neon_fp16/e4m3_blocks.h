// Amaxes and scales of MX blocks of f32 along rows: scales of sixteen blocks at a time.
#pragma once

#include "octavo/backend/cpu/isa/neon/mx_scale.h"
#include "octavo/backend/cpu/isa/neon_fp16/e4m3_lanes.h"

namespace octavo::cpu {
namespace {

// The amax as bits, in four lanes. seen(at, vector) is called with every vector loaded.
template <typename Seen>
[[gnu::always_inline]] inline uint32x4_t block_amax(const float* x, const Seen& seen) {
  uint32x4_t bits[8];
  for (int i = 0; i < 8; ++i) {
    const float32x4_t values = vld1q_f32(x + 4 * i);
    seen(4 * i, values);
    bits[i] = vreinterpretq_u32_f32(vabsq_f32(values));
  }
  for (int step = 4; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) bits[i] = vmaxq_u32(bits[i], bits[i + step]);
  return bits[0];
}

template <std::int64_t kBlocks>
struct BlockScales {
  alignas(16) float factor[kBlocks];
  alignas(16) std::uint8_t poisoned[kBlocks], bytes[kBlocks];
};

// Scales of sixteen blocks, from the `first` on. Each group of four begins at of_four(i); seen(i,
// at, vector) is called with what was loaded from of_four(i) + at.
template <std::int64_t kBlocks, typename OfFour, typename Seen>
[[gnu::always_inline]] inline void sixteen_scales(const MxConstants& k, const OfFour& of_four,
                                                  const Seen& seen, std::int64_t first,
                                                  BlockScales<kBlocks>& made) {
  uint32x4_t bytes[4], poisoned[4];
  for (int i = 0; i < 4; ++i) {
    uint32x4_t amax[4];
    for (int b = 0; b < 4; ++b) {
      const int begin = b * static_cast<int>(kMxBlock);
      amax[b] = block_amax(
          of_four(i) + begin, [&](int at, float32x4_t values)
                                  __attribute__((always_inline)) { seen(i, begin + at, values); });
    }
    float32x4_t factor;
    scales_of(k, vpmaxq_u32(vpmaxq_u32(amax[0], amax[1]), vpmaxq_u32(amax[2], amax[3])), factor,
              bytes[i], poisoned[i]);
    vst1q_f32(made.factor + first + 4 * i, factor);
  }
  vst1q_u8(made.bytes + first, low_bytes(bytes));
  vst1q_u8(made.poisoned + first, low_bytes(poisoned));
}
struct NotSeen {
  void operator()(int, int, float32x4_t) const {}
};

// Whether f16 lanes can encode these blocks.
inline bool e4m3_blocks_fit(const MxBlocks& blocks) {
  return blocks.source == DType::f32 && blocks.format.bits() == 8 &&
         e4m3_lanes_fit(make_encoder(blocks.format, {}, DType::f32));
}
inline bool e4m3_blocks_clamp(const MxBlocks& blocks) {
  return blocks.rule != ScaleRule::rceil && blocks.rule != ScaleRule::ceil;
}

}  // namespace
}  // namespace octavo::cpu
