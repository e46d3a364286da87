// Products of e2m1fn and e2m3fn as integers, in pairs of rows and columns (SMMLA): 32 products to
// an instruction, all exact.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm.h"
#include "octavo/backend/cpu/neon/gemm_pairs.h"
#include "octavo/backend/cpu/neon/neon_internal.h"
#include "octavo/backend/cpu/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/neon_i8mm/neon_i8mm.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC moves loads up before it hands out registers, and then runs out of them.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr int kStep = 8;

[[gnu::always_inline]] inline int8x16_t load(const std::byte* from) {
  return vld1q_s8(reinterpret_cast<const std::int8_t*>(from));
}

void tile(const TileJob& job) {
  pairs_tile<kStep, kStep, int32x4_t>(
      job, [] { return vdupq_n_s32(0); },
      [](int32x4_t sum, const std::byte* a, const std::byte* b) {
        return vmmlaq_s32(sum, load(a), load(b));
      },
      [](int32x4_t sum) { return vcvtq_f32_s32(sum); });
}

constexpr GemmMethod kI8{.name = "int8 SMMLA",
                         .lane = Lane::i8,
                         .wide = &kNeonF32,
                         .tile = {.rows = kPairRows, .cols = kPairCols, .step = kStep, .run = tile},
                         .dot = neon_dot_i8,
                         .look_up = neon_dot_look_up};

const GemmMethod* i8mm_gemm(const GemmJob& job) {
  if (is_integer_job(job)) return &kI8;
  const GemmMethod* method = neon_bf16_method(job);
  return method != nullptr ? method : neon_dot_gemm(job);
}

}  // namespace

const Kernels kNeonI8mmKernels = make_kernels<kNeonFp16Isa, i8mm_gemm, neon_dot_attention>(
    "cpu/neon_i8mm", "NEON with bf16 and int8 matrix products (BFMMLA, SMMLA)");

}  // namespace octavo::cpu
