// The f32 GEMM microkernel and dot kernel over lanes (FMA). MR x NR is kRows by some vectors: with
// AVX2 6 x 16 (12 of 16 registers are sums), with AVX-512 12 x 32 (24 of 32), and 8 x 48 in
// attention. Each K step is the loads of B and a broadcast of A from memory for every two or three
// multiply-adds.
#pragma once

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx2/memory_ahead.h"

namespace octavo::cpu {
namespace {

template <typename L, int kRows, int kVectors = 2>
void f32_tile(const MicrokernelJob& job) {
  constexpr int kCols = kVectors * L::kLanes;
  using Floats = typename L::Floats;
  const auto* a = reinterpret_cast<const float*>(job.a);
  const auto* b = reinterpret_cast<const float*>(job.b);
  const bool continues = job.a_scale == nullptr;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    const bool replaces = job.overwrites && r == 0;
    // Unrolled: an array indexed by a variable would live in memory instead of registers.
    Floats sum[kRows][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = L::fsplat(0.0F);
    // Sums come from L2 or farther, and are added after the run.
    if (!replaces) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kCols; j += 16) __builtin_prefetch(job.sums + i * job.pitch + j, 1);
    }
    for (std::int64_t k = 0; k < job.run; ++k, a += kRows, b += kCols) {
      // A panel of B comes from L2, and so does the next one behind it.
      prefetch_ahead<kCols * sizeof(float)>(b);
      Floats right[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) right[j] = L::fload(b + j * L::kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Floats left = L::fsplat(a[i]);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sum[i][j] = L::fma(left, right[j], sum[i][j]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) {
        float* to = job.sums + i * job.pitch + j * L::kLanes;
        if (continues) {
          if (!replaces) sum[i][j] = L::fplus(sum[i][j], L::fload(to));
        } else {
          const Floats right = L::fload(job.b_scale + r * kCols + j * L::kLanes);
          sum[i][j] = L::fma(L::ftimes(sum[i][j], right), L::fsplat(job.a_scale[r * kRows + i]),
                             replaces ? L::fsplat(0.0F) : L::fload(to));
        }
        L::fstore(to, sum[i][j]);
      }
    }
  }
}

// Rows by some columns along K, sixteen K elements a step. Sums of four rows by four columns fill
// 16 registers, so that AVX2 takes two columns at a time.
template <typename L, int kDotted, int kCols>
[[gnu::always_inline]] inline void dot_columns(const DotJob& job, int first) {
  using Floats = typename L::Floats;
  constexpr int kSteps = static_cast<int>(kDotStep) / L::kLanes;
  const float *a[kDotted], *b[kCols];
  for (int i = 0; i < kDotted; ++i) a[i] = reinterpret_cast<const float*>(job.a[i]);
  for (int j = 0; j < kCols; ++j) b[j] = reinterpret_cast<const float*>(job.b[first + j]);
  std::int64_t k = 0;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    Floats sum[kDotted * kCols];
#pragma GCC unroll 16
    for (int i = 0; i < kDotted * kCols; ++i) sum[i] = L::fsplat(0.0F);
    for (const std::int64_t end = k + job.run; k < end; k += kDotStep) {
#pragma GCC unroll 2
      for (int c = 0; c < kSteps; ++c) {
        Floats left[kDotted];
#pragma GCC unroll 4
        for (int i = 0; i < kDotted; ++i) left[i] = L::fload(a[i] + k + c * L::kLanes);
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) {
          const Floats right = L::fload(b[j] + k + c * L::kLanes);
#pragma GCC unroll 4
          for (int i = 0; i < kDotted; ++i)
            sum[i * kCols + j] = L::fma(left[i], right, sum[i * kCols + j]);
        }
      }
    }
    float parts[kDotted * kCols];
    if constexpr (kDotted * kCols == L::kLanes) {
      L::fsums(sum, parts);
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < kDotted * kCols; ++i) parts[i] = L::fsum(sum[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kDotted; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) {
        const float part = parts[i * kCols + j];
        float& to = job.sums[i * job.pitch + first + j];
        to += job.b_scale == nullptr
                  ? part
                  : part * job.b_scale[r * kDotCols + first + j] * job.a_scale[i][r];
      }
  }
}

template <typename L, int kDotted>
[[gnu::always_inline]] inline void dot_rows(const DotJob& job) {
  constexpr int kCols = L::kLanes == 16 || kDotted <= 2 ? kDotCols : kDotCols / 2;
  for (int first = 0; first < kDotCols; first += kCols) dot_columns<L, kDotted, kCols>(job, first);
}

template <typename L>
void f32_dot(const DotJob& job) {
  with_rows(job.rows, [&]<int kDotted>() { dot_rows<L, kDotted>(job); });
}

}  // namespace
}  // namespace octavo::cpu
