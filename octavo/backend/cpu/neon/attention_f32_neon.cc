// Attention on the f32 tiles of products, 8 keys or channels by 12 queries.
#include "octavo/backend/cpu/attention.h"
#include "octavo/backend/cpu/attention_softmax.h"
#include "octavo/backend/cpu/neon/neon_internal.h"

namespace octavo::cpu {

bool neon_softmax(const SoftmaxJob& job) { return softmax_f32<12>(job); }

namespace {

// The same as kNeonF32.tile, which cannot be read before the program runs.
constexpr AttentionMethod kF32{.name = "f32 FMLA",
                               .score = {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile},
                               .weigh = {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile},
                               .softmax = neon_softmax,
                               .tile_keys = 32,
                               .interleave = neon_interleave_words};

}  // namespace

const AttentionMethod* neon_attention(const AttentionJob& job) {
  return is_fast_attention(job) ? &kF32 : nullptr;
}

}  // namespace octavo::cpu
