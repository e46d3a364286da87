// The f32 GEMM microkernel in plain C++ loops that compilers vectorise. MR x NR is 4 x 8: it fits
// the sixteen registers of a plain x86.
#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"

namespace octavo::cpu::portable {
namespace {

constexpr int kRows = kTile.rows, kCols = kTile.cols;

}  // namespace

void gemm_tile(const MicrokernelJob& job) {
  const auto* a = reinterpret_cast<const float*>(job.a);
  const auto* b = reinterpret_cast<const float*>(job.b);
  const bool scaled = job.a_scale == nullptr;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    float sum[kRows][kCols] = {};
    if (scaled)
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kCols; ++j) sum[i][j] = job.sums[i * job.pitch + j];
    for (std::int64_t k = 0; k < job.run; ++k, a += kRows, b += kCols)
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kCols; ++j) sum[i][j] += a[i] * b[j];
    for (int i = 0; i < kRows; ++i) {
      float* to = job.sums + i * job.pitch;
      for (int j = 0; j < kCols; ++j)
        to[j] = scaled
                    ? sum[i][j]
                    : to[j] + sum[i][j] * job.b_scale[r * kCols + j] * job.a_scale[r * kRows + i];
    }
  }
}

namespace {

// Sixteen independent sums, which compilers may keep in vectors without reordering.
float run_dot(const float* a, const float* b, std::int64_t n) {
  float sums[kDotStep] = {};
  for (std::int64_t k = 0; k < n; k += kDotStep)
    for (std::int64_t i = 0; i < kDotStep; ++i) sums[i] += a[k + i] * b[k + i];
  for (std::int64_t half = kDotStep / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

void dot(const DotJob& job) {
  for (int i = 0; i < job.rows; ++i) {
    const auto* a = reinterpret_cast<const float*>(job.a[i]);
    for (int j = 0; j < kDotCols; ++j) {
      const auto* b = reinterpret_cast<const float*>(job.b[j]);
      float& sum = job.sums[i * job.pitch + j];
      for (std::int64_t r = 0; r < job.runs; ++r) {
        const float part = run_dot(a + r * job.run, b + r * job.run, job.run);
        sum += job.b_scale == nullptr ? part
                                      : part * job.b_scale[r * kDotCols + j] * job.a_scale[i][r];
      }
    }
  }
}

constexpr GemmMethod kF32{.name = "f32", .packed_type = PackedType::f32, .tile = kTile, .dot = dot};

}  // namespace

const GemmMethod* gemm_method(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 ? &kF32 : nullptr;
}

}  // namespace octavo::cpu::portable
