// Attention in bf16 by AMX (TDPBF16PS). Q, K and V are exact in bf16 up to scales that are factored
// out, and sums are f32, so that only weights are rounded, to bf16: what the rungs below f32 ask
// for (docs/numerics/attention.md, Matrix instructions). Rows over the error bound are recomputed
// in f32.
//
// Scores are transposed, [keys][queries], as everywhere: A of Q K^T is keys, 32 elements of a head
// to a line, and B is queries in pairs; A of P V is channels, 32 keys to a line, and B is the
// weights in pairs of keys, as the softmax makes them from scores without a transpose.
//
// The floor, for a block of 32 keys by 32 queries, D = 64: 8 TDPBF16PS for scores and 8 for values
// of 16 cycles each, 256 cycles; beside them, of 512-bit operations at two a cycle, 2 a vector for
// units and 14 for the softmax (softmax_bf16.h), 1024 of them, 512 cycles. So the softmax is what
// counts at D = 64, and both are level at D = 128.
#include <immintrin.h>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/softmax_bf16.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx2/softmax_kernel.h"
#include "octavo/backend/cpu/isa/avx512/attention_avx512.h"
#include "octavo/backend/cpu/isa/avx512/attention_decode_steps.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi_internal.h"

namespace octavo::cpu {
namespace {

constexpr int kPitch = kSide * static_cast<int>(sizeof(float));

// 32 keys by 32 queries, times the units of both.
void score(const MicrokernelJob& job) {
  zero_tiles<false>();
  multiply_bf16(job.a, job.b, job.run);
  store_tiles<false>(job.sums, job.pitch * static_cast<std::int64_t>(sizeof(float)));
  const __m512 right[2] = {_mm512_loadu_ps(job.b_scale), _mm512_loadu_ps(job.b_scale + kHalf)};
#pragma GCC unroll 4
  for (int i = 0; i < kSide; ++i) {
    const __m512 left = _mm512_set1_ps(job.a_scale[i]);
    float* const to = job.sums + i * job.pitch;
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512 sum = _mm512_loadu_ps(to + j * kHalf);
      _mm512_storeu_ps(to + j * kHalf, _mm512_mul_ps(_mm512_mul_ps(sum, left), right[j]));
    }
  }
}

// 32 channels by 32 queries, over all keys of a tile. Each tile of V has a factor of its own, so
// that sums cannot stay in tiles.
void weigh(const MicrokernelJob& job) {
  alignas(64) float part[kSide][kSide];
  zero_tiles<false>();
  multiply_bf16(job.a, job.b, job.run);
  store_tiles<false>(part[0], kPitch);
  const __m512 factor = _mm512_set1_ps(*job.a_scale);
#pragma GCC unroll 4
  for (int i = 0; i < kSide; ++i) {
    float* const to = job.sums + i * job.pitch;
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j)
      _mm512_storeu_ps(to + j * kHalf, _mm512_fmadd_ps(_mm512_load_ps(part[i] + j * kHalf), factor,
                                                       _mm512_loadu_ps(to + j * kHalf)));
  }
}

// What a tile of V costs besides products, its sums, is 24 operations a vector for 64 TDPBF16PS.
constexpr std::int64_t kTileKeys = 128;

const AttentionMethod kBf16{.name = "bf16 AMX",
                            .score_type = PackedType::bf16,
                            .score = {.rows = kSide,
                                      .cols = kSide,
                                      .step = Bf16Tiles::kWord,
                                      .run = score,
                                      .a_step = Bf16Tiles::kStep},
                            .weigh_type = PackedType::bf16,
                            .weigh = {.rows = kSide,
                                      .cols = kSide,
                                      .step = Bf16Tiles::kWord,
                                      .run = weigh,
                                      .a_step = Bf16Tiles::kStep},
                            .softmax = softmax_bf16,
                            .soft_cap = soft_cap_lanes<Avx512Lanes>,
                            .takes_key_factors = true,
                            .rescale = rescale_lanes<Avx512Lanes, 2>,
                            .transpose_sums = transpose_sums<kSide>,
                            .enter = enter_tiles,
                            .leave = leave_tiles,
                            .weight_factor = kWeightOfOne,
                            .tile_keys = kTileKeys,
                            .interleave = interleave_words,
                            .interleave_keys = interleave_lines,
                            .panels = &kAmxPanels,
                            .decode_kernels = amx_decode_attention,
                            .precise = &kAvx512VbmiAttention,
                            .decode_steps = &kAvx512DecodeSteps};

// V: as is_bf16_by_tile, or with any scale per row.
bool takes_values(const GemmOperand& v, DType values) {
  return is_bf16_by_tile(v, values, kTileKeys) || is_bf16_by_row(v, values);
}

}  // namespace

const AttentionMethod* amx_attention(const AttentionJob& job) {
  return is_fast_attention(job) && is_short_p(job) && is_bf16_by_row(job.q.first, job.values) &&
                 is_bf16_by_row(job.k.first, job.values) && takes_values(job.v.first, job.values)
             ? &kBf16
             : avx512_vbmi_attention(job);
}

}  // namespace octavo::cpu
