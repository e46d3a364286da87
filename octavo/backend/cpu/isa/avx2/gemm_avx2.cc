// GEMM and attention in f32.
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_softmax.h"
#include "octavo/backend/cpu/isa/avx2/avx2_internal.h"
#include "octavo/backend/cpu/isa/avx2/gemm_f32_kernel.h"
#include "octavo/backend/cpu/isa/avx2/lanes_avx2.h"

namespace octavo::cpu {

void avx2_f32_tile(const MicrokernelJob& job) { f32_tile<Avx2Lanes, kAvx2Rows>(job); }

namespace {

constexpr Microkernel kTile{.rows = kAvx2Rows, .cols = kAvx2Cols, .step = 1, .run = avx2_f32_tile};
// A panel of B of this depth takes half of an L1 of 32 KiB.
constexpr std::int64_t kKc = 256;
constexpr GemmMethod kGemm{.name = "f32 FMA",
                           .packed_type = PackedType::f32,
                           .tile = kTile,
                           .dot = f32_dot<Avx2Lanes>,
                           .kc = kKc};
// Fewer rows: the tiles of the backward pass are cut by them.
constexpr Microkernel kAttentionTile{
    .rows = 4, .cols = kAvx2Cols, .step = 1, .run = f32_tile<Avx2Lanes, 4>};
constexpr AttentionMethod kAttention{.name = "f32 FMA",
                                     .score = kAttentionTile,
                                     .weigh = kAttentionTile,
                                     .softmax = softmax_f32<kAvx2Cols>,
                                     .tile_keys = 64};

}  // namespace

const GemmMethod* avx2_gemm(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 ? &kGemm : nullptr;
}

const AttentionMethod* avx2_attention(const AttentionJob& job) {
  return is_fast_attention(job) ? &kAttention : nullptr;
}

}  // namespace octavo::cpu
