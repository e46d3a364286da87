// GEMV by codes over lanes: one row of A by rows of B as they are in memory, a byte a code, each
// decoded in a register and multiplied there. Lanes are added once a call; scales multiply the sums
// of a run, lane by lane.
#pragma once

#include <bit>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx2/gemm_pack_kernel.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

// NaN if there is one among n codes, else zero.
template <typename L>
float nan_of_codes(const std::uint8_t* codes, std::int64_t n) {
  SeenNan<L> seen;
  for (std::int64_t k = 0; k < n; k += 4 * L::kLanes) seen.look(load_row<L>(codes + k, n - k));
  return std::bit_cast<float>(L::largest(seen.nan()));
}

template <typename L, const Format& kFormat>
void dot_codes(const DotJob& job) {
  using Floats = typename L::Floats;
  using Codes = FiniteCodes<L, kFormat.nan != Nan::none>;
  constexpr std::int64_t kLine = 64;
  const FpEnvGuard guard;
  const Codes codes(kFormat);
  const auto* a = reinterpret_cast<const float*>(job.a[0]);
  const std::uint8_t* b[kDotCols];
  Floats total[kDotCols];
#pragma GCC unroll 4
  for (int j = 0; j < kDotCols; ++j) {
    b[j] = reinterpret_cast<const std::uint8_t*>(job.b[j]);
    total[j] = L::fsplat(0.0F);
  }
  std::int64_t k = 0;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    Floats sum[kDotCols];
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j) sum[j] = L::fsplat(0.0F);
    for (const std::int64_t end = k + job.run; k < end; k += L::kLanes) {
      const Floats left = L::fload(a + k);
      if (k % kLine == 0)
        for (int j = 0; j < kDotCols; ++j) __builtin_prefetch(b[j] + k + job.ahead);
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j)
        sum[j] = L::fma(left, L::as_floats(codes(L::load_codes(b[j] + k), 0)), sum[j]);
    }
    const Floats a_scale = L::fsplat(job.a_scale[0][r]);
#pragma GCC unroll 4
    for (int j = 0; j < kDotCols; ++j)
      total[j] =
          L::fma(L::ftimes(sum[j], L::fsplat(job.b_scale[r * kDotCols + j])), a_scale, total[j]);
  }
  for (int j = 0; j < kDotCols; ++j) {
    job.sums[j] += L::fsum(total[j]);
    if constexpr (Codes::kFindsNan) job.sums[j] += nan_of_codes<L>(b[j], k);
  }
}

template <typename L>
DotKernel choose_dot_codes(const Format& format) {
  if (format == e4m3fn) return dot_codes<L, e4m3fn>;
  if (format == e2m3fn) return dot_codes<L, e2m3fn>;
  return format == e3m2fn ? dot_codes<L, e3m2fn> : nullptr;
}

}  // namespace
}  // namespace octavo::cpu
