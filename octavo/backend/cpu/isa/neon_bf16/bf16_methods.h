// Attention methods with weights in bf16; they differ in how scores are computed.
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon/scaled_exp2_neon.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"

namespace octavo::cpu {
namespace {

static_assert(kPairRows == kBf16Channels && kBf16Step == kBf16Keys);
// The end of a tile, rearranging pairs into rows and adding them, costs an eighth of its products.
constexpr std::int64_t kBf16TileKeys = 128;

constexpr AttentionMethod bf16_values(const char* name, PackedType packed_type,
                                      const Microkernel& score) {
  return {
      .name = name,
      .score_type = packed_type,
      .score = score,
      .weigh_type = PackedType::bf16,
      .weigh = {.rows = kPairRows, .cols = kPairCols, .step = kBf16Step, .run = neon_bf16_weigh},
      .softmax = neon_bf16_softmax,
      .weight_factor = kScaledFactor,
      .tile_keys = kBf16TileKeys,
      .narrow = neon_fp16_narrow,
      .widen = neon_fp16_widen,
      .decode_kernels = neon_bf16_decode_attention};
}

}  // namespace
}  // namespace octavo::cpu
