// The int8 GEMM microkernel (SMMLA): products of e2m1fn and e2m3fn as integers, in pairs of rows
// and columns, 32 products to an instruction, all exact.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon_i8mm/i8_lanes.h"
#include "octavo/backend/cpu/isa/neon_i8mm/neon_i8mm_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

void tile(const MicrokernelJob& job) {
  pairs_tile<kI8Step, kI8Step, int32x4_t>(
      job, [] { return vdupq_n_s32(0); }, plus_i8_pairs, value_of_i8_sum);
}

constexpr GemmMethod kI8{
    .name = "int8 SMMLA",
    .packed_type = PackedType::i8,
    .wide = &kNeonF32,
    .tile = {.rows = kPairRows, .cols = kPairCols, .step = kI8Step, .run = tile},
    .dot = neon_dot_i8,
    .panels = [](const Matrix& elements) -> PanelOrder {
      if (elements.packed) return {};
      return {.cols = kPairCols, .step = kI8Step};
    },
    .look_up = neon_dot_look_up};

// Scales along K cost SMMLA a conversion and a multiplication of every sum for each block of them.
// Where they are multiplied into bf16 panels, which is exact, BFMMLA is faster; but panels are not
// worth packing for one row, nor for four of longer blocks.
bool takes_integers(const GemmJob& job) {
  const std::int64_t run = common_run(job), rows = job.out.rows;
  return is_integer_job(job) &&
         (run > kMxBlock || rows == 1 || (rows <= kDotRows && run == kMxBlock));
}

const GemmMethod* i8mm_gemm(const GemmJob& job) {
  const GemmMethod* method = neon_bf16_method(job);
  if (method != nullptr && reads_panels(*method, job.b)) return method;
  if (takes_integers(job)) return &kI8;
  return method != nullptr ? method : neon_dot_gemm(job);
}

}  // namespace

const Kernels kNeonI8mmKernels = make_kernels<kNeonFp16Isa, i8mm_gemm, neon_i8mm_attention>(
    "cpu/neon_i8mm", "NEON with bf16 and int8 matrix products (BFMMLA, SMMLA)");

}  // namespace octavo::cpu
