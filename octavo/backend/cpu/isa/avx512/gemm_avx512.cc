// GEMM and attention in f32.
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_softmax.h"
#include "octavo/backend/cpu/isa/avx2/gemm_f32_kernel.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"

namespace octavo::cpu {

void avx512_f32_tile(const MicrokernelJob& job) { f32_tile<Avx512Lanes, kAvx512Rows>(job); }

namespace {

constexpr Microkernel kTile{
    .rows = kAvx512Rows, .cols = kAvx512Cols, .step = 1, .run = avx512_f32_tile};
// One vector of queries: the tiles of the backward pass are cut by both sides.
constexpr Microkernel kAttentionTile{
    .rows = 16, .cols = 16, .step = 1, .run = f32_tile<Avx512Lanes, 16, 1>};
constexpr AttentionMethod kAttention{.name = "f32 FMA",
                                     .score = kAttentionTile,
                                     .weigh = kAttentionTile,
                                     .softmax = softmax_f32<16>,
                                     .tile_keys = 64};

}  // namespace

constinit const GemmMethod kAvx512F32{
    .name = "f32 FMA", .packed_type = PackedType::f32, .tile = kTile, .dot = f32_dot<Avx512Lanes>};

const GemmMethod* avx512_gemm(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 ? &kAvx512F32 : nullptr;
}

const AttentionMethod* avx512_attention(const AttentionJob& job) {
  return is_fast_attention(job) ? &kAttention : nullptr;
}

}  // namespace octavo::cpu
