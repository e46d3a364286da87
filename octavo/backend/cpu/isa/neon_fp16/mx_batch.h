// MX quantization of bf16, eight blocks of a row at a time: amaxes and staged magnitudes first;
// then all scales at once; then codes. 20 operations for sixteen bf16, and 3 for the scales.
#pragma once

#include <cstring>

#include "octavo/backend/cpu/isa/neon_fp16/mx_lanes.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kBatch = 8;  // blocks
constexpr std::int64_t kBatchSize = kBatch * kMxBlock;
constexpr std::int64_t kBfloatBytes = element_bytes(DType::bf16);

// A staged batch in memory, between its first and its second read.
struct BatchLanes {
  std::uint16_t* lanes;
  std::uint8_t* tops;

  [[nodiscard, gnu::always_inline]] MxGroup group(std::int64_t at) const {
    return {{vld1q_u16(lanes + at), vld1q_u16(lanes + at + 8)}, vld1q_u8(tops + at)};
  }
  [[gnu::always_inline]] void set(std::int64_t at, const MxGroup& group) const {
    vst1q_u16(lanes + at, group.lanes[0]);
    vst1q_u16(lanes + at + 8, group.lanes[1]);
    vst1q_u8(tops + at, group.tops);
  }
};

// Returns the amaxes.
[[gnu::always_inline]] inline uint16x8_t stage_batch(const std::byte* from, std::int64_t blocks,
                                                     const BatchLanes& batch) {
  uint16x8_t most[kBatch] = {};
  for (std::int64_t b = 0; b < blocks; ++b) {
    uint16x8_t larger[2];
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = b * kMxBlock + 16 * i;
      const MxGroup group = mx_group(from + at * kBfloatBytes);
      batch.set(at, group);
      larger[i] = vmaxq_u16(group.lanes[0], group.lanes[1]);
    }
    most[b] = vmaxq_u16(larger[0], larger[1]);
  }
  for (int step = kBatch / 2; step > 0; step /= 2)
    for (int b = 0; b < step; ++b) most[b] = vpmaxq_u16(most[2 * b], most[2 * b + 1]);
  return most[0];
}

// The scales of a batch, extracted one by one.
struct BatchScales {
  alignas(16) std::uint16_t taken_off[kBatch], factor[kBatch], ties[kBatch], sign[kBatch];

  explicit BatchScales(const MxScales& scales) {
    vst1q_u16(taken_off, scales.taken_off);
    vst1q_u16(factor, scales.factor);
    vst1q_u16(ties, scales.ties);
    vst1q_u16(sign, scales.sign);
  }
  [[nodiscard, gnu::always_inline]] MxScales of(std::int64_t block) const {
    return {vld1q_dup_u16(taken_off + block), vld1q_dup_u16(factor + block),
            vld1q_dup_u16(ties + block), vld1q_dup_u16(sign + block)};
  }
};

template <typename Element, int kBlocks>
[[gnu::always_inline]] inline void finish_blocks(const MxConstants& k, const BatchLanes& batch,
                                                 const BatchScales& made, std::int64_t first,
                                                 std::uint8_t* codes) {
  constexpr int kGroups = 2 * kBlocks;
  MxGroup groups[kGroups];
  MxScales scales[2 * kGroups];
  uint8x16_t out[kGroups];
  for (int b = 0; b < kBlocks; ++b) {
    const MxScales scale = made.of(first + b);
    for (int v = 0; v < 4; ++v) scales[4 * b + v] = scale;
  }
  for (int g = 0; g < kGroups; ++g) groups[g] = batch.group(first * kMxBlock + 16 * g);
  mx_codes<Element, kGroups>(k, groups, scales, out);
  for (int g = 0; g < kGroups; ++g) vst1q_u8(codes + first * kMxBlock + 16 * g, out[g]);
}

template <typename Element>
[[gnu::always_inline]] inline void finish_batch(const MxConstants& k, const BatchLanes& batch,
                                                uint16x8_t amax, std::int64_t blocks,
                                                std::uint8_t* codes, std::uint8_t* scales) {
  uint8x8_t stored;
  const BatchScales made(scales_of(k, amax, stored));
  std::uint8_t bytes[kBatch];
  vst1_u8(bytes, stored);
  std::memcpy(scales, bytes, static_cast<std::size_t>(blocks));
  std::int64_t b = 0;
  for (; b + 2 <= blocks; b += 2) finish_blocks<Element, 2>(k, batch, made, b, codes);
  if (b < blocks) finish_blocks<Element, 1>(k, batch, made, b, codes);
}

}  // namespace
}  // namespace octavo::cpu
