// The skinny GEMM kernel over lanes: five to sixteen rows of A by one row of B, in f32. A step is a
// vector of B and, for each row, a multiply-add whose other operand is a vector of A from L1. The
// loads set the pace: one for each multiply-add. At the end the lanes of all sums are added at
// once, by transposing (L::fsums), where a sum of each by itself would take four times the
// shuffles.
#pragma once

#include "octavo/backend/cpu/gemm/gemm.h"

namespace octavo::cpu {
namespace {

// kRows rows from the first on, at most as many as a vector has lanes. Scales of several runs
// multiply the elements of B, a single one the sums.
template <typename L, int kRows>
[[gnu::always_inline]] inline void skinny_rows(const SkinnyJob& job, int first) {
  using Floats = typename L::Floats;
  constexpr int kSteps = static_cast<int>(kSkinnyStep) / L::kLanes;
  Floats sum[L::kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < L::kLanes; ++i) sum[i] = L::fsplat(0.0F);
  const float* a = job.a + first * kSkinnyStep;
  const float* b = job.b;
  const std::int64_t step = job.rows * kSkinnyStep;
  const bool scales = job.b_scale != nullptr && job.runs > 1;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    const Floats scale = L::fsplat(scales ? job.b_scale[r] : 1.0F);
    for (const float* const end = b + job.run; b < end; b += kSkinnyStep, a += step) {
#pragma GCC unroll 2
      for (int c = 0; c < kSteps; ++c) {
        const Floats right = L::ftimes(L::fload(b + c * L::kLanes), scale);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i)
          sum[i] = L::fma(L::fload(a + i * kSkinnyStep + c * L::kLanes), right, sum[i]);
      }
    }
  }
  const Floats found = L::fsums(sum), before = L::fload(job.sums + first);
  const float last = job.b_scale != nullptr && job.runs == 1 ? job.b_scale[0] : 1.0F;
  L::fstore(job.sums + first, L::fma(found, L::fsplat(last), before));
}

// Calls one.operator()<rows>() for 1 to kMost rows.
template <int kMost, typename One>
[[gnu::always_inline]] inline void with_skinny_rows(int rows, const One& one) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_skinny_rows<kMost - 1>(rows, one);
  }
  one.template operator()<kMost>();
}

// As many rows at a time as a vector has lanes, which its sums are stored by.
template <typename L>
void f32_skinny(const SkinnyJob& job) {
  for (int first = 0; first < job.rows; first += L::kLanes)
    with_skinny_rows<L::kLanes>(job.rows - first < L::kLanes ? job.rows - first : L::kLanes,
                                [&]<int kRows>() { skinny_rows<L, kRows>(job, first); });
}

}  // namespace
}  // namespace octavo::cpu
