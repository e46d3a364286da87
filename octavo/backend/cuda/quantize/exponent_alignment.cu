// MX exponent alignment for the FP8 tensor cores, which apply no scales within a product: the codes
// of every block are multiplied by a power of two such that all blocks of a row, or of 128 columns,
// have one exponent. A code keeps its value unless it becomes subnormal and loses bits; such codes
// are counted.
//
// The device decides between the two: by row if the exponents of no row are further apart than
// kSpreadOfRows, because small blocks would lose bits there. Usual operands are aligned by row, so
// that pass runs first, and the spread that it finds on the way decides whether its result is used.
// The pass by columns decides in turn whether blocks lose so much that operands are multiplied
// unaligned.
#include <algorithm>

#include "octavo/backend/align_job.h"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/pdl_launch.h"
#include "octavo/backend/cuda/quantize/exponent_alignment.h"
#include "octavo/backend/cuda/quantize/mx_read.cuh"
#include "octavo/backend/cuda/quantize/mx_rescale.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256, kEach = kCodesRead, kAtOnce = 4;

// Most blocks have nothing to report, and atomics on one address serialize: read first.
__device__ __forceinline__ void raise_align_mode(AlignFound* found, AlignMode mode) {
  const auto number = static_cast<unsigned>(mode);
  if (number > *static_cast<volatile unsigned*>(&found->mode)) atomicMax(&found->mode, number);
}

__device__ __forceinline__ unsigned long long* counter_of(const AlignJob& job, AlignMode mode) {
  return job.found != nullptr ? &job.found->changed[static_cast<unsigned>(mode)] : job.changed;
}

// The largest and the smallest exponent of a row, for all lanes of a warp. Blocks of zeros have the
// smallest possible exponent and nothing to lose, so they are left out. Sixteen bytes per load
// where the layout allows it.
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

__device__ __forceinline__ uint4 codes_of(const AlignJob& job, std::int64_t row, std::int64_t col) {
  const Matrix& codes = job.from.codes;
  return codes_at(codes, row, col, job.vectors, job.codes != codes.data);
}

// The number of binades by which a block is rescaled. A NaN scale becomes that of its whole row or
// run, whose codes are kept.
__device__ __forceinline__ std::uint32_t distance_to(std::uint32_t top, const AlignJob& job,
                                                     std::int64_t row, std::int64_t col) {
  return top == 255 ? 0 : top - exponent_at(job.from.scales, row, col / kMxBlock);
}

// Rescales a vector of codes by 2^-down and stores it among the aligned codes.
template <bool kE5m2, bool kCounts>
__device__ __forceinline__ uint4 rescale_to(const AlignJob& job, std::uint32_t down, uint4 codes,
                                            std::int64_t row, std::int64_t col, unsigned* changed) {
  if (down > 0) codes = Rescaling<kE5m2>(down)(codes, kCounts ? changed : nullptr);
  unsigned char* to = job.codes + row * job.code_pitch + col;
  if (job.whole) {
    *reinterpret_cast<uint4*>(to) = codes;
    return codes;
  }
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (col + i < job.from.codes.cols)
      to[i] = static_cast<unsigned char>(words[i / 4] >> (i % 4 * 8));
  return codes;
}

// Whether any lane of the warp has half of a block that loses too much when `codes` become `made`.
// All lanes call this; neighbouring lanes have the two halves of a block.
template <bool kE5m2>
__device__ __forceinline__ bool lose_too_much(uint4 codes, uint4 made, std::uint32_t down) {
  const auto magnitudes = [](std::uint32_t word) { return word & 0x7F7F7F7Fu; };
  const std::uint32_t four = __vmaxu4(__vmaxu4(magnitudes(made.x), magnitudes(made.y)),
                                      __vmaxu4(magnitudes(made.z), magnitudes(made.w)));
  const std::uint32_t two = __vmaxu4(four, four >> 16), half = max(two & 0xFFu, two >> 8 & 0xFFu),
                      block = max(half, __shfl_xor_sync(0xFFFFFFFFu, half, 1));
  unsigned changed = 0;
  if (down > 0 && block < least_largest_code(kE5m2)) {
    const Rescaling<kE5m2> rescaled(down);
    (void)rescaled(codes, &changed);
  }
  return __any_sync(0xFFFFFFFFu, changed > 0);
}

// Aligns by row. A warp has a part of a row, `part_cols` columns.
template <bool kE5m2, bool kCounts>
__global__ void __launch_bounds__(kThreads, 4)
    rows_kernel(const __grid_constant__ AlignJob job, unsigned parts, std::int64_t part_cols,
                bool scale_vectors) {
  pdl_wait();
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  // Where rows have parts there are few rows: 32-bit division is enough.
  const unsigned narrow = static_cast<unsigned>(warp), part = parts > 1 ? narrow % parts : 0;
  const std::int64_t row = parts > 1 ? narrow / parts : warp;
  if (row >= job.from.codes.rows) return;
  const RowExponents exponents(job.from.scales, row, scale_vectors);
  const unsigned top = exponents.top, spread = top - min(top, exponents.bottom);
  if (part == 0 && threadIdx.x % 32 == 0) {
    job.planes[row] = power_of(top);
    if (job.found != nullptr && spread > kSpreadOfRows)
      raise_align_mode(job.found, AlignMode::by_columns);
  }
  const std::int64_t end = min(job.from.codes.cols, (part + 1) * part_cols);
  unsigned changed = 0;
  for (std::int64_t first = part * part_cols; first < end; first += kAtOnce * 32 * kEach) {
    uint4 codes[kAtOnce];
    const std::int64_t col = first + threadIdx.x % 32 * kEach;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (col + i * 32 * kEach < end) codes[i] = codes_of(job, row, col + i * 32 * kEach);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (col + i * 32 * kEach < end)
        rescale_to<kE5m2, kCounts>(job, distance_to(top, job, row, col + i * 32 * kEach), codes[i],
                                   row, col + i * 32 * kEach, &changed);
  }
  if constexpr (kCounts) count_changed(changed, counter_of(job, AlignMode::by_row));
  pdl_launch_dependents();
}

// Aligns by 128 columns. A warp has 512 columns of kAtOnce rows, whose loads are all in flight at
// once.
template <bool kE5m2, bool kCounts>
__global__ void __launch_bounds__(kThreads) columns_kernel(const __grid_constant__ AlignJob job) {
  pdl_launch_dependents();  // the next kernel may be gated as well, and this one may exit at once
  pdl_wait();
  // Other blocks of this launch may change the mode: the lanes of a warp must agree.
  if (job.found != nullptr &&
      !__all_sync(0xFFFFFFFFu, *static_cast<volatile unsigned*>(&job.found->mode) ==
                                   static_cast<unsigned>(AlignMode::by_columns)))
    return;
  const Matrix& scales = job.from.scales;
  const std::int64_t rows = job.from.codes.rows, cols = job.from.codes.cols,
                     first = static_cast<std::int64_t>(blockIdx.x) * kThreads / 32 * kAtOnce +
                             threadIdx.x / 32 * kAtOnce,
                     col = (static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x % 32) * kEach,
                     run = col / kAlignRun;
  unsigned changed = 0;
  uint4 codes[kAtOnce] = {};
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i)
    if (col < cols && first + i < rows) codes[i] = codes_of(job, first + i, col);
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const std::int64_t row = first + i;
    if (row >= rows) break;
    std::uint32_t top = 0, down = 0;
    uint4 made{};
    if (col < cols) {
#pragma unroll
      for (int j = 0; j < kAlignRun / kMxBlock; ++j)
        if (run * (kAlignRun / kMxBlock) + j < scales.cols)
          top = max(top, exponent_at(scales, row, run * (kAlignRun / kMxBlock) + j));
      if (col % kAlignRun == 0) job.planes[run * job.plane_pitch + row] = power_of(top);
      down = distance_to(top, job, row, col);
      made = rescale_to<kE5m2, kCounts>(job, down, codes[i], row, col, &changed);
    }
    if (job.found != nullptr && lose_too_much<kE5m2>(codes[i], made, down) && threadIdx.x % 32 == 0)
      raise_align_mode(job.found, AlignMode::as_they_are);
  }
  if constexpr (kCounts) count_changed(changed, counter_of(job, AlignMode::by_columns));
}

// Adds the number of elements that alignment changed, in the mode that is used.
__global__ void take_count_kernel(const AlignFound* found, unsigned long long* changed) {
  if (found->mode < static_cast<unsigned>(AlignMode::as_they_are))
    *changed += found->changed[found->mode];
}

bool is_e5m2(const AlignJob& job) { return job.from.codes.format == e5m2; }

// The job restricted to a part of the columns.
AlignJob columns_of(AlignJob job, std::int64_t first, std::int64_t count) {
  Matrix &codes = job.from.codes, &scales = job.from.scales;
  codes.data = static_cast<unsigned char*>(codes.data) + first;
  codes.cols = count;
  scales.data = static_cast<unsigned char*>(scales.data) + first / kMxBlock * scales.col_stride;
  scales.cols = tile_count(kMxBlock, count);
  job.codes += first;
  job.planes += first / kAlignRun * job.plane_pitch;
  return job;
}

}  // namespace

void align_by_row(const Exec& exec, const AlignJob& job) {
  const Matrix &codes = job.from.codes, &scales = job.from.scales;
  // Enough warps to fill the device, but at least one pass per warp.
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
  launch_pdl(exec, blocks_for(codes.rows * parts, kThreads / 32), kThreads, kernel, job,
             static_cast<unsigned>(parts), part_cols, vectors);
}

void align_by_columns(const Exec& exec, const AlignJob& job) {
  const Matrix& codes = job.from.codes;
  const bool counts = job.changed != nullptr;
  const auto kernel = is_e5m2(job)
                          ? (counts ? columns_kernel<true, true> : columns_kernel<true, false>)
                          : (counts ? columns_kernel<false, true> : columns_kernel<false, false>);
  constexpr std::int64_t kMax = std::int64_t{1} << 24;  // maximum number of columns per launch
  for (std::int64_t first = 0; first < codes.cols; first += kMax) {
    const std::int64_t count = std::min(kMax, codes.cols - first);
    const dim3 grid(blocks_for(codes.rows, kThreads / 32 * kAtOnce), blocks_for(count, 32 * kEach));
    launch_pdl(exec, grid, kThreads, kernel, columns_of(job, first, count));
  }
}

void take_count(const Exec& exec, const AlignFound* found, unsigned long long* changed) {
  take_count_kernel<<<1, 1, 0, stream_of(exec)>>>(found, changed);
  OCTAVO_CUDA_LAUNCHED("take_count_kernel");
}

}  // namespace octavo::cuda
