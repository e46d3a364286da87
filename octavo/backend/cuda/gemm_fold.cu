// MX operands for the FP8 tensor cores, which know no scales within a product: every block's codes
// are multiplied by a power of two until all blocks of a row have one exponent, or all of 128
// columns. A code stays what it was unless it becomes subnormal and loses bits: those are counted.
//
// Which of the two is decided on the device: by row where exponents of no row are further apart
// than kSpreadOfRows, since small blocks would lose bits there.
#include <cuda_fp16.h>

#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/gemm_fold.h"
#include "octavo/backend/cuda/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256, kEach = 16;
constexpr int kBlock = 32, kRun = 128;

__device__ __forceinline__ std::uint32_t exponent_at(const Matrix& scales, std::int64_t row,
                                                     std::int64_t block) {
  return static_cast<const unsigned char*>(
      scales.data)[row * scales.row_pitch + block * scales.col_stride];
}

// The largest exponent of a row, and the largest distance in any row. A warp a row, sixteen bytes a
// lane where they lie so.
__global__ void __launch_bounds__(kThreads)
    survey_kernel(const __grid_constant__ Matrix scales, bool vectors, unsigned char* tops,
                  unsigned* spread) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= scales.rows) return;
  unsigned top = 0, bottom = 255;
  const std::int64_t whole = vectors ? scales.cols / 16 * 16 : 0;
  if (whole > 0) {
    unsigned tops4 = 0, bottoms4 = 0xFFFFFFFFu;
    const auto* from = reinterpret_cast<const uint4*>(
        static_cast<const unsigned char*>(scales.data) + row * scales.row_pitch);
    for (std::int64_t at = threadIdx.x % 32; at < whole / 16; at += 32) {
      const uint4 words = __ldg(from + at);
      tops4 = __vmaxu4(tops4, __vmaxu4(__vmaxu4(words.x, words.y), __vmaxu4(words.z, words.w)));
      bottoms4 =
          __vminu4(bottoms4, __vminu4(__vminu4(words.x, words.y), __vminu4(words.z, words.w)));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      top = max(top, tops4 >> 8 * i & 0xFF);
      bottom = min(bottom, bottoms4 >> 8 * i & 0xFF);
    }
  }
  for (std::int64_t block = whole + threadIdx.x % 32; block < scales.cols; block += 32) {
    const unsigned exponent = exponent_at(scales, row, block);
    top = max(top, exponent);
    bottom = min(bottom, exponent);
  }
  top = __reduce_max_sync(0xFFFFFFFFu, top);
  bottom = __reduce_min_sync(0xFFFFFFFFu, bottom);
  if (threadIdx.x % 32 != 0) return;
  tops[row] = static_cast<unsigned char>(top);
  // Most rows have nothing to add, and atomics on one address wait for each other.
  if (top - bottom > *static_cast<volatile unsigned*>(spread)) atomicMax(spread, top - bottom);
}

__device__ __forceinline__ float power_of(std::uint32_t code) {  // as of e8m0
  return __uint_as_float(code == 255 ? 0x7FC00000u : code == 0 ? 0x00400000u : code << 23);
}

template <bool kE5m2>
__device__ __forceinline__ float2 decoded_pair(std::uint32_t codes) {
  std::uint32_t halves;
  if constexpr (kE5m2)
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  else
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(codes)));
  return __half22float2(*reinterpret_cast<const __half2*>(&halves));
}

// Two codes times a power of two below one.
template <bool kE5m2>
__device__ __forceinline__ std::uint32_t lowered(std::uint32_t codes, float factor,
                                                 unsigned* changed) {
  const float2 was = decoded_pair<kE5m2>(codes);
  const float2 now = {was.x * factor, was.y * factor};
  const std::uint32_t made = hardware_pair<kE5m2>(now.x, now.y);
  const float2 is = decoded_pair<kE5m2>(made);
  *changed += (is.x != now.x && now.x == now.x) + (is.y != now.y && now.y == now.y);
  return made;
}

template <bool kE5m2>
__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ FoldJob job) {
  const bool by_row = *job.spread <= kSpreadOfRows;
  const std::int64_t cols = job.from.codes.cols, vectors = (cols + kEach - 1) / kEach,
                     at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = at / vectors, col = at % vectors * kEach;
  unsigned changed = 0;
  if (row < job.from.codes.rows) {
    const Matrix& scales = job.from.scales;
    const std::int64_t block = col / kBlock, run = col / kRun;
    std::uint32_t top = 0;
    if (by_row) {
      top = job.tops[row];
    } else {
#pragma unroll
      for (int i = 0; i < kRun / kBlock; ++i)
        if (run * (kRun / kBlock) + i < scales.cols)
          top = max(top, exponent_at(scales, row, run * (kRun / kBlock) + i));
    }
    if (col % kRun == 0 && (!by_row || col == 0))
      job.planes[(by_row ? 0 : run * job.plane_pitch) + row] = power_of(top);
    const std::uint32_t down = top - exponent_at(scales, row, block);
    const unsigned char* from = static_cast<const unsigned char*>(job.from.codes.data) +
                                row * job.from.codes.row_pitch + col;
    uint4 codes = {0, 0, 0, 0};
    if (job.vectors && col + kEach <= cols) {
      codes = __ldg(reinterpret_cast<const uint4*>(from));
    } else {
      std::uint32_t words[4] = {};
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (col + i < cols) words[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
      codes = make_uint4(words[0], words[1], words[2], words[3]);
    }
    // A NaN scale is that of its whole row or run; and what is 2^-40 of it is zero.
    if (down > 0 && top != 255) {
      const float factor = power_of(127 - min(down, 40u));
      const auto four = [&](std::uint32_t word) {
        return lowered<kE5m2>(word & 0xFFFF, factor, &changed) |
               lowered<kE5m2>(word >> 16, factor, &changed) << 16;
      };
      codes = make_uint4(four(codes.x), four(codes.y), four(codes.z), four(codes.w));
    }
    *reinterpret_cast<uint4*>(job.codes + row * job.code_pitch + col) = codes;
  }
  changed = __reduce_add_sync(0xFFFFFFFFu, changed);
  if (threadIdx.x % 32 == 0 && changed > 0 && job.changed != nullptr)
    atomicAdd(job.changed, static_cast<unsigned long long>(changed));
}

}  // namespace

void survey_exponents(const Exec& exec, const Matrix& scales, unsigned char* tops,
                      unsigned* spread) {
  survey_kernel<<<blocks_for(scales.rows, kThreads / 32), kThreads, 0, stream_of(exec)>>>(
      scales,
      scales.col_stride == 1 && scales.row_pitch % 16 == 0 &&
          reinterpret_cast<std::uintptr_t>(scales.data) % 16 == 0,
      tops, spread);
  OCTAVO_CUDA_LAUNCHED("survey_kernel");
}

void fold_codes(const Exec& exec, const FoldJob& job, bool is_e5m2) {
  const std::int64_t work = job.from.codes.rows * ((job.from.codes.cols + kEach - 1) / kEach);
  const auto kernel = is_e5m2 ? fold_kernel<true> : fold_kernel<false>;
  kernel<<<blocks_for(work, kThreads), kThreads, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("fold_kernel");
}

}  // namespace octavo::cuda
