// Attention methods with weights in f16; they differ in how scores are computed.
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/scaled_exp2_neon.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_tile.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {
namespace {

// Scores by another microkernel, whose panels interleave 4-byte words.
constexpr AttentionMethod half_values(const char* name, PackedType packed_type,
                                      const Microkernel& score) {
  return {.name = name,
          .score_type = packed_type,
          .score = score,
          .weigh_type = PackedType::f16,
          .weigh = {.rows = kHalfRows, .cols = kHalfCols, .step = 1, .run = neon_fp16_weigh},
          .softmax = neon_fp16_softmax,
          .sums_weight_squares = true,
          .weight_factor = kScaledFactor,
          .tile_keys = 64,
          .interleave = neon_interleave_words,
          .narrow = neon_fp16_narrow,
          .widen = neon_fp16_widen,
          .decode_kernels = neon_fp16_decode_attention};
}

// Scores in f16 as well, where norms allow it; else by `precise`.
constexpr AttentionMethod half_scores(const char* name, const AttentionMethod* precise) {
  AttentionMethod method =
      half_values(name, PackedType::f16,
                  {.rows = kHalfRows, .cols = kHalfCols, .step = 1, .run = neon_fp16_score});
  method.interleave_halves = neon_fp16_interleave;
  method.precise = precise;
  return method;
}

// The same, with scores stored as f16.
constexpr AttentionMethod narrow_scores(AttentionMethod method) {
  method.score.run = neon_fp16_score_narrow;
  method.narrow_scores = true;
  method.softmax = neon_fp16_softmax_narrow;
  method.weight_factor = kNarrowFactor;
  method.tile_keys = 128;
  method.codes = &kNeonFp16Codes;
  return method;
}

}  // namespace
}  // namespace octavo::cpu
