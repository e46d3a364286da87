// MX operands for the FP8 tensor cores, which know no scales within a product: every block's codes
// are multiplied by a power of two until all blocks of a row have one exponent, or all of 128
// columns. A code stays what it was unless it becomes subnormal and loses bits: those are counted.
//
// Which of the two is decided on the device: by row where exponents of no row are further apart
// than kSpreadOfRows, since small blocks would lose bits there. That is what usual operands are, so
// it is done at once, and what is found on the way says whether it stays.
#include <algorithm>

#include "octavo/backend/cuda/alignment.h"
#include "octavo/backend/cuda/device/hopper.cuh"
#include "octavo/backend/cuda/device/mx_lower.cuh"
#include "octavo/backend/cuda/gemm_fold.h"
#include "octavo/backend/cuda/overlapped_launch.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/backend/fold_job.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256, kEach = 16, kAtOnce = 4;

__device__ __forceinline__ std::uint32_t exponent_at(const Matrix& scales, std::int64_t row,
                                                     std::int64_t block) {
  return static_cast<const unsigned char*>(
      scales.data)[row * scales.row_pitch + block * scales.col_stride];
}

// The largest and the smallest exponent of a row, for all lanes of a warp. Blocks of zeros have the
// smallest one there is, and nothing to lose: it does not count. Sixteen bytes a lane where they
// lie so.
struct RowExponents {
  unsigned top = 0, bottom = 255;

  __device__ __forceinline__ RowExponents(const Matrix& scales, std::int64_t row, bool vectors) {
    const int lane = threadIdx.x % 32;
    const std::int64_t whole = vectors ? scales.cols / 16 * 16 : 0;
    if (whole > 0) {
      unsigned tops = 0, bottoms = 0xFFFFFFFFu;
      const auto* from = reinterpret_cast<const uint4*>(
          static_cast<const unsigned char*>(scales.data) + row * scales.row_pitch);
      for (std::int64_t at = lane; at < whole / 16; at += 32) {
        const uint4 words = __ldg(from + at);
        tops = __vmaxu4(tops, __vmaxu4(__vmaxu4(words.x, words.y), __vmaxu4(words.z, words.w)));
        const auto no_zero = [](unsigned word) { return word | __vcmpeq4(word, 0u); };
        bottoms = __vminu4(bottoms, __vminu4(__vminu4(no_zero(words.x), no_zero(words.y)),
                                             __vminu4(no_zero(words.z), no_zero(words.w))));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        top = max(top, tops >> 8 * i & 0xFF);
        bottom = min(bottom, bottoms >> 8 * i & 0xFF);
      }
    }
    for (std::int64_t block = whole + lane; block < scales.cols; block += 32) {
      const unsigned exponent = exponent_at(scales, row, block);
      top = max(top, exponent);
      bottom = min(bottom, exponent == 0 ? 255u : exponent);
    }
    top = __reduce_max_sync(0xFFFFFFFFu, top);
    bottom = __reduce_min_sync(0xFFFFFFFFu, bottom);
  }
};

__device__ __forceinline__ uint4 codes_at(const FoldJob& job, std::int64_t row, std::int64_t col) {
  const unsigned char* from =
      static_cast<const unsigned char*>(job.from.codes.data) + row * job.from.codes.row_pitch + col;
  if (job.vectors && col + kEach <= job.from.codes.cols) {
    const auto* vector = reinterpret_cast<const uint4*>(from);
    return job.codes == job.from.codes.data ? *vector : __ldg(vector);
  }
  std::uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (col + i < job.from.codes.cols)
      words[i / 4] |= static_cast<std::uint32_t>(from[i]) << (i % 4 * 8);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// A vector of codes with the exponent `top`, to where folded ones are.
template <bool kE5m2, bool kCounts>
__device__ __forceinline__ void lower_to(const FoldJob& job, std::uint32_t top, uint4 codes,
                                         std::int64_t row, std::int64_t col, unsigned* changed) {
  const std::uint32_t down = top - exponent_at(job.from.scales, row, col / kMxBlock);
  // A NaN scale is that of its whole row or run.
  if (down > 0 && top != 255) codes = Lowering<kE5m2>(down)(codes, kCounts ? changed : nullptr);
  unsigned char* to = job.codes + row * job.code_pitch + col;
  if (job.whole) {
    *reinterpret_cast<uint4*>(to) = codes;
    return;
  }
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (col + i < job.from.codes.cols)
      to[i] = static_cast<unsigned char>(words[i / 4] >> (i % 4 * 8));
}

// A warp has a part of a row, `part_cols` columns.
template <bool kE5m2, bool kCounts>
__global__ void __launch_bounds__(kThreads, 4)
    rows_kernel(const __grid_constant__ FoldJob job, unsigned parts, std::int64_t part_cols,
                bool scale_vectors) {
  wait_for_kernels_before();
  const unsigned warp = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, part = warp % parts;
  const std::int64_t row = warp / parts;
  if (row >= job.from.codes.rows) return;
  const RowExponents exponents(job.from.scales, row, scale_vectors);
  const unsigned top = exponents.top, spread = top - min(top, exponents.bottom);
  if (part == 0 && threadIdx.x % 32 == 0) {
    job.planes[row] = power_of(top);
    // Most rows have nothing to add, and atomics on one address wait for each other.
    if (job.found != nullptr && spread > *static_cast<volatile unsigned*>(&job.found->spread))
      atomicMax(&job.found->spread, spread);
  }
  const std::int64_t end = min(job.from.codes.cols, (part + 1) * part_cols);
  unsigned changed = 0;
  for (std::int64_t first = part * part_cols; first < end; first += kAtOnce * 32 * kEach) {
    uint4 codes[kAtOnce];
    const std::int64_t col = first + threadIdx.x % 32 * kEach;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (col + i * 32 * kEach < end) codes[i] = codes_at(job, row, col + i * 32 * kEach);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (col + i * 32 * kEach < end)
        lower_to<kE5m2, kCounts>(job, top, codes[i], row, col + i * 32 * kEach, &changed);
  }
  if constexpr (kCounts)
    count_changed(changed, job.found != nullptr ? &job.found->changed : job.changed);
  let_next_kernel_begin();
}

// A warp has 512 columns of a few rows, all of whose codes are on their way at once.
template <bool kE5m2, bool kCounts>
__global__ void __launch_bounds__(kThreads) columns_kernel(const __grid_constant__ FoldJob job) {
  wait_for_kernels_before();
  if (job.found != nullptr && job.found->spread <= kSpreadOfRows) return;
  const Matrix& scales = job.from.scales;
  const std::int64_t rows = job.from.codes.rows, cols = job.from.codes.cols,
                     first = static_cast<std::int64_t>(blockIdx.x) * kThreads / 32 * kAtOnce +
                             threadIdx.x / 32 * kAtOnce,
                     col = (static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x % 32) * kEach,
                     run = col / kFoldRun;
  unsigned changed = 0;
  uint4 codes[kAtOnce] = {};
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i)
    if (col < cols && first + i < rows) codes[i] = codes_at(job, first + i, col);
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const std::int64_t row = first + i;
    if (col >= cols || row >= rows) continue;
    std::uint32_t top = 0;
#pragma unroll
    for (int j = 0; j < kFoldRun / kMxBlock; ++j)
      if (run * (kFoldRun / kMxBlock) + j < scales.cols)
        top = max(top, exponent_at(scales, row, run * (kFoldRun / kMxBlock) + j));
    if (col % kFoldRun == 0) job.planes[run * job.plane_pitch + row] = power_of(top);
    lower_to<kE5m2, kCounts>(job, top, codes[i], row, col, &changed);
  }
  if constexpr (kCounts) count_changed(changed, job.changed);
}

// What folding by row changed, if that is how it stays.
__global__ void take_count_kernel(const FoldFound* found, unsigned long long* changed) {
  if (found->spread <= kSpreadOfRows) *changed += found->changed;
}

bool is_e5m2(const FoldJob& job) { return job.from.codes.format == e5m2; }

// A part of the columns.
FoldJob columns_of(FoldJob job, std::int64_t first, std::int64_t count) {
  Matrix &codes = job.from.codes, &scales = job.from.scales;
  codes.data = static_cast<unsigned char*>(codes.data) + first;
  codes.cols = count;
  scales.data = static_cast<unsigned char*>(scales.data) + first / kMxBlock * scales.col_stride;
  scales.cols = tile_count(kMxBlock, count);
  job.codes += first;
  job.planes += first / kFoldRun * job.plane_pitch;
  return job;
}

}  // namespace

void fold_by_row(const Exec& exec, const FoldJob& job) {
  const Matrix &codes = job.from.codes, &scales = job.from.scales;
  // So many warps that all of the device is busy, but with no less than one pass each.
  constexpr std::int64_t kWarps = 8192, kPass = kAtOnce * 32 * kEach;
  const std::int64_t passes = (codes.cols + kPass - 1) / kPass,
                     wanted = std::clamp<std::int64_t>(kWarps / codes.rows, 1, passes),
                     part_cols = (passes + wanted - 1) / wanted * kPass,
                     parts = (codes.cols + part_cols - 1) / part_cols;
  const bool vectors = scales.col_stride == 1 && has_aligned_rows(scales, 16);
  const bool counts = job.changed != nullptr;
  const auto kernel = is_e5m2(job)
                          ? (counts ? rows_kernel<true, true> : rows_kernel<true, false>)
                          : (counts ? rows_kernel<false, true> : rows_kernel<false, false>);
  launch_overlapped(exec, blocks_for(codes.rows * parts, kThreads / 32), kThreads, kernel, job,
                    static_cast<unsigned>(parts), part_cols, vectors);
}

void fold_by_columns(const Exec& exec, const FoldJob& job) {
  const Matrix& codes = job.from.codes;
  const bool counts = job.changed != nullptr;
  const auto kernel = is_e5m2(job)
                          ? (counts ? columns_kernel<true, true> : columns_kernel<true, false>)
                          : (counts ? columns_kernel<false, true> : columns_kernel<false, false>);
  constexpr std::int64_t kMost = std::int64_t{1} << 24;  // of columns, in a grid
  for (std::int64_t first = 0; first < codes.cols; first += kMost) {
    const std::int64_t count = std::min(kMost, codes.cols - first);
    const dim3 grid(blocks_for(codes.rows, kThreads / 32 * kAtOnce), blocks_for(count, 32 * kEach));
    launch_overlapped(exec, grid, kThreads, kernel, columns_of(job, first, count));
  }
}

void take_count(const Exec& exec, const FoldFound* found, unsigned long long* changed) {
  take_count_kernel<<<1, 1, 0, stream_of(exec)>>>(found, changed);
  OCTAVO_CUDA_LAUNCHED("take_count_kernel");
}

}  // namespace octavo::cuda
