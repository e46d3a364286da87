// GEMM and attention in f32.
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/avx2/avx2_internal.h"
#include "octavo/backend/cpu/isa/avx2/gemm_f32_kernel.h"
#include "octavo/backend/cpu/isa/avx2/gemm_pack_kernel.h"
#include "octavo/backend/cpu/isa/avx2/gemm_small_m_kernel.h"
#include "octavo/backend/cpu/isa/avx2/gemv_kernel.h"
#include "octavo/backend/cpu/isa/avx2/lanes_avx2.h"
#include "octavo/backend/cpu/isa/avx2/soft_cap_kernel.h"
#include "octavo/backend/cpu/isa/avx2/softmax_kernel.h"

namespace octavo::cpu {

void avx2_f32_tile(const MicrokernelJob& job) { f32_tile<Avx2Lanes, kAvx2Rows>(job); }

namespace {

constexpr Microkernel kTile{.rows = kAvx2Rows, .cols = kAvx2Cols, .step = 1, .run = avx2_f32_tile};
// A panel of B of this depth takes half of an L1 of 32 KiB.
constexpr std::int64_t kKc = 256;
constexpr GemmMethod kSmallMCodes = small_m_method<Avx2Lanes>();
constexpr GemmMethod kGemm{.name = "f32 FMA",
                           .packed_type = PackedType::f32,
                           .tile = kTile,
                           .dot = f32_dot<Avx2Lanes>,
                           .small_m = &kSmallMCodes,
                           .kc = kKc,
                           .sums_in_place = true,
                           .pack_codes = choose_pack_codes<Avx2Lanes>,
                           .dot_codes = choose_dot_codes<Avx2Lanes>};
// 6 rows divide the tiles of the backward pass, 48, and tiles of keys. For V 4 rows, which waste no
// channel where 64 and 128 are no multiple of 6.
constexpr AttentionMethod kAttention{
    .name = "f32 FMA",
    .score = kTile,
    .overwrites_scores = true,
    .weigh = {.rows = 4, .cols = kAvx2Cols, .step = 1, .run = f32_tile<Avx2Lanes, 4>},
    .softmax = softmax_lanes<Avx2Lanes, 2>,
    .soft_cap = soft_cap_lanes<Avx2Lanes>,
    .rescale = rescale_lanes<Avx2Lanes, 2>,
    .sums_weight_squares = true,
    .tile_keys = 96,
    .sums_by_tile = true};

}  // namespace

const GemmMethod* avx2_gemm(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 ? &kGemm : nullptr;
}

const AttentionMethod* avx2_attention(const AttentionJob& job) {
  return is_fast_attention(job) ? &kAttention : nullptr;
}

}  // namespace octavo::cpu
