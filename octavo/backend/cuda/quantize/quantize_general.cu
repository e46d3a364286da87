// General quantization fallback, by definition: any tile, source, policy, arith, rounding, packing.
// First a thread block finds the scale of each tile, then every element is encoded with its tile's
// scale. In between scales are in scratch, for a row block of tiles at a time.
#include <algorithm>

#include "octavo/backend/cuda/convert/count.cuh"
#include "octavo/backend/cuda/device/block_reduce.cuh"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"
#include "octavo/scale/fit.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRowBlockTiles = 1 << 20;  // scratch of 12 MiB
constexpr std::int64_t kBigTile = 64 * 1024;      // from here on many thread blocks reduce one amax
constexpr std::int64_t kMaxFitted = 1 << 22;      // maximum tile elements of a search for scales

struct Region {
  std::int64_t row, col, rows, cols;
};
__device__ Region region_of(const CopyJob& job, std::int64_t tile) {
  const std::int64_t row = tile / job.tile_cols * job.tile.rows,
                     col = tile % job.tile_cols * job.tile.cols;
  return {row, col, min(job.tile.rows, job.to.codes.rows - row),
          min(job.tile.cols, job.to.codes.cols - col)};
}
__device__ double value_at(const CopyJob& job, const Region& region, std::int64_t i) {
  return seen_value(job, region.row + i / region.cols, region.col + i % region.cols);
}

// Radix select: the magnitude of a rank, eight bits at a time from the top.
__device__ std::uint32_t ranked_magnitude(const CopyJob& job, const Region& region) {
  __shared__ unsigned counts[256];
  __shared__ std::uint32_t prefix;
  __shared__ std::int64_t rank;
  const std::int64_t n = region.rows * region.cols;
  if (threadIdx.x == 0) {
    prefix = 0;
    rank = percentile_rank(n, job.percentile);
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += static_cast<int>(blockDim.x))
      counts[i] = 0;
    __syncthreads();
    const std::uint32_t above = shift == 24 ? 0u : prefix >> (shift + 8);
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const std::uint32_t bits = counted(value_at(job, region, i), job.amax_of);
      if (shift == 24 || bits >> (shift + 8) == above) atomicAdd(&counts[bits >> shift & 255u], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      std::int64_t before = 0;
      unsigned digit = 0;
      while (digit < 255 && before + counts[digit] <= rank) before += counts[digit++];
      prefix |= digit << shift;
      rank -= before;
    }
    __syncthreads();
  }
  return prefix;
}

// fit_difference, in the type that values are processed in.
template <typename Real>
__device__ Real error_at(const CopyJob& job, std::int64_t row, std::int64_t col,
                         const TileScale& scale) {
  const double value = seen_value(job, row, col);
  if (!isfinite(value)) return 0;
  const Encoded encoded =
      encode_scaled(job, value, scale, draw_of(job.encode, row * job.to.codes.cols + col));
  return fit_difference(job.policy, static_cast<Real>(value),
                        static_cast<Real>(scaled_value(job, value, scale)),
                        static_cast<Real>(decode(job.to.codes.format, encoded.code)),
                        static_cast<Real>(scale.factor));
}

template <typename Real>
__device__ double squared_errors(const CopyJob& job, const Region& region, const TileScale& scale) {
  double sum = 0;
  for (std::int64_t row = region.row; row < region.row + region.rows; ++row) {
    for (std::int64_t start = 0; start < region.cols; start += kFitRun) {
      FitRun<Real> run;
      const std::int64_t end = min(start + kFitRun, region.cols);
      for (std::int64_t i = start; i < end; ++i)
        run.add(i - start, error_at<Real>(job, row, region.col + i, scale),
                job.column_weights != nullptr ? job.column_weights[region.col + i] : 1.0F);
      sum += run.sum();
    }
  }
  return sum;
}

__device__ TileScale candidate(const CopyJob& job, float amax, int i) {
  return fit_candidate(job.policy, job.scale, job.to.codes.format, amax,
                       job.to.tensor_scale != nullptr ? *job.to.tensor_scale : 1.0F,
                       job.tensor_amax != nullptr ? *job.tensor_amax : 0.0F, i);
}

// Each thread tries a candidate scale, or two, and sums its errors in the order that defines the
// result.
__device__ TileScale fitted_scale(const CopyJob& job, const Region& region, float amax) {
  __shared__ double errors[kMaxFitCandidates];
  const int candidates = fit_candidates(job.policy, job.scale);
  for (int mine = static_cast<int>(threadIdx.x); mine < candidates;
       mine += static_cast<int>(blockDim.x)) {
    const TileScale scale = candidate(job, amax, mine);
    const double squares = job.is_f64 ? squared_errors<double>(job, region, scale)
                                      : squared_errors<float>(job, region, scale);
    errors[mine] = fit_error(job.policy, squares, scale.scale);
  }
  __syncthreads();
  int best = -1;
  double least = HUGE_VAL;
  for (int i = 0; i < candidates; ++i) {
    if (errors[i] < least) {
      least = errors[i];
      best = i;
    }
  }
  __syncthreads();
  const float tensor_scale = job.to.tensor_scale != nullptr ? *job.to.tensor_scale : 1.0F;
  if (best < 0) return fit_fallback(job.policy, job.scale, made_scale(job, amax), tensor_scale);
  return fit_settled(job.policy, job.scale, candidate(job, amax, best), tensor_scale);
}

// One thread block per tile. `amaxes`, if given, are already known.
__global__ void __launch_bounds__(kThreads)
    scales_kernel(const __grid_constant__ CopyJob job, std::int64_t first_tile,
                  const std::uint32_t* amaxes, TileScale* scales) {
  const std::int64_t tile = first_tile + blockIdx.x;
  const Region region = region_of(job, tile);
  TileScale scale;
  if (job.given_inv_scale != nullptr) {
    scale = from_inv_scale(job.scale.format, *job.given_inv_scale);
  } else if (job.given_amax != nullptr) {
    scale = made_scale(job, *job.given_amax);
  } else {
    std::uint32_t mine = 0;
    if (amaxes != nullptr) {
      mine = amaxes[blockIdx.x];
    } else {
      for (std::int64_t i = threadIdx.x; i < region.rows * region.cols; i += blockDim.x)
        mine = max(mine, counted(value_at(job, region, i), job.amax_of));
      mine = block_amax(mine);
    }
    const float amax = __uint_as_float(mine);
    if (!is_searched(job.policy, job.scale, amax) || job.policy == AmaxPolicy::max) {
      scale = made_scale(job, amax);
    } else if (job.policy == AmaxPolicy::percentile) {
      const float found = __uint_as_float(ranked_magnitude(job, region));
      scale = made_scale(job, found > 0.0F ? found : amax);
    } else {
      scale = fitted_scale(job, region, amax);
    }
  }
  if (threadIdx.x == 0) {
    scales[blockIdx.x] = scale;
    store_scale(job.to.scales, tile / job.tile_cols, tile % job.tile_cols, scale.bits);
  }
}

// Amaxes of big tiles, each reduced by gridDim.y thread blocks.
__global__ void __launch_bounds__(kThreads)
    big_amax_kernel(const __grid_constant__ CopyJob job, std::int64_t first_tile,
                    std::uint32_t* amaxes) {
  const Region region = region_of(job, first_tile + blockIdx.x);
  std::uint32_t mine = 0;
  const std::int64_t n = region.rows * region.cols,
                     step = static_cast<std::int64_t>(gridDim.y) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x; i < n;
       i += step)
    mine = max(mine, counted(value_at(job, region, i), job.amax_of));
  mine = block_amax(mine);
  if (threadIdx.x == 0) atomicMax(&amaxes[blockIdx.x], mine);
}

// The elements of rows [first_row, first_row + rows), whose first tile has scales[0].
__global__ void __launch_bounds__(kThreads)
    codes_kernel(const __grid_constant__ CopyJob job, std::int64_t first_row, std::int64_t rows,
                 const TileScale* scales) {
  const Matrix& codes = job.to.codes;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int width = codes.packed ? kPackedGroup : 1;
  const std::int64_t per_row = (codes.cols + width - 1) / width;
  const std::int64_t row = first_row + at / per_row, first = at % per_row * width;
  ThreadCounts met;
  if (row < first_row + rows) {
    const TileScale* of_row = scales + (row - first_row) / job.tile.rows * job.tile_cols;
    std::uint32_t group[kPackedGroup] = {};
    const int n = static_cast<int>(min(static_cast<std::int64_t>(width), codes.cols - first));
    for (int i = 0; i < n; ++i) {
      const std::int64_t col = first + i;
      const Encoded encoded =
          encode_scaled(job, seen_value(job, row, col), of_row[col / job.tile.cols],
                        draw_of(job.encode, row * codes.cols + col));
      group[i] = encoded.code;
      met.add(encoded);
    }
    codes.packed ? store_packed(codes, row, first, group, n)
                 : store_code(codes, row, first, group[0]);
  }
  if (job.counts != nullptr) add_counts(job.counts, met);
}

void quantize_copy(const Exec& exec, const CopyJob& job) {
  const std::int64_t elements = job.tile.rows * job.tile.cols;
  const bool tries = tries_scales(job.policy);
  check(!tries || elements <= kMaxFitted, ErrorCode::unsupported, "cuda",
        "got a policy that tries scales with a tile of ", elements, " elements; expected at most ",
        kMaxFitted, " on a device; use smaller tiles, another policy, or the CPU");
  const std::int64_t row_block_rows =
      std::min(job.tile_rows, std::max<std::int64_t>(1, kRowBlockTiles / job.tile_cols));
  const std::int64_t most = row_block_rows * job.tile_cols;
  const bool big =
      elements > kBigTile && job.given_amax == nullptr && job.given_inv_scale == nullptr;
  const auto scale_bytes = static_cast<std::size_t>(most) * sizeof(TileScale);
  const Scratch scratch(exec, scale_bytes + (big ? static_cast<std::size_t>(most) * 4 : 0));
  auto* scales = scratch.as<TileScale>();
  auto* amaxes = big ? reinterpret_cast<std::uint32_t*>(scratch.as<char>() + scale_bytes) : nullptr;
  const cudaStream_t stream = stream_of(exec);
  const int threads = tries || elements <= 64 ? 64 : kThreads;
  for (std::int64_t row_block = 0; row_block < job.tile_rows; row_block += row_block_rows) {
    const std::int64_t tiles = std::min(row_block_rows, job.tile_rows - row_block) * job.tile_cols;
    const std::int64_t first_tile = row_block * job.tile_cols;
    if (big) {
      OCTAVO_CUDA_CHECK(cudaMemsetAsync(amaxes, 0, static_cast<std::size_t>(tiles) * 4, stream));
      const dim3 grid(blocks_for(tiles, 1),
                      static_cast<unsigned>(std::min<std::int64_t>(1024, elements / 16384 + 1)));
      big_amax_kernel<<<grid, kThreads, 0, stream>>>(job, first_tile, amaxes);
      OCTAVO_CUDA_LAUNCHED("big_amax_kernel");
    }
    scales_kernel<<<blocks_for(tiles, 1), threads, 0, stream>>>(job, first_tile, amaxes, scales);
    OCTAVO_CUDA_LAUNCHED("scales_kernel");
    const std::int64_t first_row = row_block * job.tile.rows;
    const std::int64_t rows =
        std::min(row_block_rows * job.tile.rows, job.to.codes.rows - first_row);
    const std::int64_t per_row = job.to.codes.packed
                                     ? (job.to.codes.cols + kPackedGroup - 1) / kPackedGroup
                                     : job.to.codes.cols;
    codes_kernel<<<blocks_for(rows * per_row, kThreads), kThreads, 0, stream>>>(job, first_row,
                                                                                rows, scales);
    OCTAVO_CUDA_LAUNCHED("codes_kernel");
  }
}

}  // namespace

void quantize_general(const Exec& exec, const QuantizeJob& job) {
  if (job.rowwise.wanted()) quantize_copy(exec, copy_job(job, false));
  if (job.columnwise.wanted()) quantize_copy(exec, copy_job(job, true));
}

}  // namespace octavo::cuda
