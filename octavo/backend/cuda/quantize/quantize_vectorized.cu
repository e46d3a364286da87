// Quantizes with any arith, rule and scale format, to any format that has an EncodePlan, in three
// kernels: the amaxes of tiles; their scales by definition, one thread each; the codes, eight
// values per thread. A row block goes through all three while it is in L2.
#include <algorithm>
#include <bit>

#include "octavo/backend/cuda/convert/encode_element.cuh"
#include "octavo/backend/cuda/convert/philox_draws.cuh"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRowBlockBytes = 32 << 20;
constexpr std::uint32_t kNan = 0x7FC00000u;

struct VectorizedPlan {
  CopyJob job;
  EncodePlan lane;
  DrawKeys keys;
  std::int64_t vectors;       // per row
  std::int64_t tile_vectors;  // per row of a tile
  int group;                  // neighbouring lanes in one tile, a power of two
  bool whole;                 // such a group is a whole tile
  int bits;                   // of a code in memory
  std::uint32_t most;         // larger magnitudes are ignored
  std::uint32_t* amaxes;
  TileScale* scales;
};

struct RowBlock {
  std::int64_t first_row, rows;  // of the matrix
  std::int64_t first_tile, tiles;
};

// Position of a thread's vector; outside the row block if `inside` is false.
struct Place {
  std::int64_t row, vector, tile;  // tile: in the row block
  bool inside;
};
__device__ __forceinline__ Place place_of(const VectorizedPlan& plan, const RowBlock& row_block) {
  // 32-bit, because these are divisions.
  const unsigned at = blockIdx.x * kThreads + threadIdx.x;
  const auto vectors = static_cast<unsigned>(plan.vectors);
  const unsigned row = at / vectors, vector = at - row * vectors;
  const unsigned tile_row = row / static_cast<unsigned>(plan.job.tile.rows),
                 tile_col = vector / static_cast<unsigned>(plan.tile_vectors);
  return {row_block.first_row + row, vector, tile_row * plan.job.tile_cols + tile_col,
          row < static_cast<unsigned>(row_block.rows)};
}

template <DType kSource>
__device__ __forceinline__ Raw<kSource> load_at(const VectorizedPlan& plan, const Place& place) {
  const Matrix& values = plan.job.source.values;
  return load_raw<kSource>(
      static_cast<const unsigned char*>(values.data) + place.row * values.row_pitch, place.vector);
}

template <DType kSource>
__global__ void __launch_bounds__(kThreads)
    amaxes_kernel(const __grid_constant__ VectorizedPlan plan,
                  const __grid_constant__ RowBlock row_block) {
  const Place place = place_of(plan, row_block);
  Raw<kSource> raw = {};
  if (place.inside) raw = load_at<kSource>(plan, place);
  std::uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const std::uint32_t magnitude = f32_bits<kSource>(raw, i) & 0x7FFFFFFFu;
    amax = max(amax, magnitude > plan.most ? 0u : magnitude);
  }
  for (int step = 1; step < plan.group; step *= 2)
    amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, step));
  if (!place.inside || static_cast<int>(threadIdx.x) % plan.group != 0) return;
  if (plan.whole) {
    plan.amaxes[place.tile] = amax;
  } else {
    atomicMax(&plan.amaxes[place.tile], amax);
  }
}

__global__ void __launch_bounds__(kThreads)
    scales_kernel(const __grid_constant__ VectorizedPlan plan,
                  const __grid_constant__ RowBlock row_block) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= row_block.tiles) return;
  const CopyJob& job = plan.job;
  const TileScale scale =
      job.given_inv_scale != nullptr
          ? from_inv_scale(job.scale.format, *job.given_inv_scale)
          : made_scale(job, job.given_amax != nullptr ? *job.given_amax
                                                      : __uint_as_float(plan.amaxes[at]));
  plan.scales[at] = scale;
  const std::int64_t tile = row_block.first_tile + at;
  store_scale(job.to.scales, tile / job.tile_cols, tile % job.tile_cols, scale.bits);
}

template <DType kSource, Rounding kRounding, EncodeKind kKind>
__global__ void __launch_bounds__(kThreads)
    codes_kernel(const __grid_constant__ VectorizedPlan plan,
                 const __grid_constant__ RowBlock row_block) {
  const Place place = place_of(plan, row_block);
  if (!place.inside) return;
  const CopyJob& job = plan.job;
  const Raw<kSource> raw = load_at<kSource>(plan, place);
  const TileScale scale = plan.scales[place.tile];
  const bool poisoned = scale.scale != scale.scale;
  std::uint32_t codes[kVector], draws[kVector] = {};
  if constexpr (kRounding == Rounding::stochastic)
    draw_eight<kKind>(
        plan.keys,
        job.encode.first_index +
            static_cast<std::uint64_t>(place.row * job.to.codes.cols + place.vector * kVector),
        plan.lane, draws);
  float x[kVector], u[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = __uint_as_float(f32_bits<kSource>(raw, i));
  if (job.division) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) u[i] = x[i] / scale.factor;
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) u[i] = x[i] * scale.factor;
  }
  if (job.peer_adjust != PeerAdjust::none) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) u[i] = peer_adjusted(job.peer_adjust, u[i]);
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    // A product does not preserve the NaN payload, and the sign of Inf times zero depends on the
    // processor.
    const std::uint32_t nan = x[i] != x[i] ? __float_as_uint(x[i]) : kNan;
    const std::uint32_t bits = u[i] == u[i] ? __float_as_uint(u[i]) : nan;
    const std::uint32_t code = encode_element<kRounding, kKind>(plan.lane, bits, draws[i]);
    codes[i] = poisoned ? job.poison_code : code;
  }
  store_codes(static_cast<unsigned char*>(job.to.codes.data) + place.row * job.to.codes.row_pitch,
              place.vector, plan.bits, codes);
}

template <DType kSource, Rounding kRounding, EncodeKind kKind>
void launch(const Exec& exec, const VectorizedPlan& plan, const RowBlock& row_block) {
  const unsigned blocks = blocks_for(row_block.rows * plan.vectors, kThreads);
  const cudaStream_t stream = stream_of(exec);
  if (plan.amaxes != nullptr) {
    if (!plan.whole)
      OCTAVO_CUDA_CHECK(
          cudaMemsetAsync(plan.amaxes, 0, static_cast<std::size_t>(row_block.tiles) * 4, stream));
    amaxes_kernel<kSource><<<blocks, kThreads, 0, stream>>>(plan, row_block);
    OCTAVO_CUDA_LAUNCHED("amaxes_kernel");
  }
  scales_kernel<<<blocks_for(row_block.tiles, kThreads), kThreads, 0, stream>>>(plan, row_block);
  OCTAVO_CUDA_LAUNCHED("scales_kernel");
  codes_kernel<kSource, kRounding, kKind><<<blocks, kThreads, 0, stream>>>(plan, row_block);
  OCTAVO_CUDA_LAUNCHED("codes_kernel");
}

template <DType kSource, Rounding kRounding>
void launch_kind(const Exec& exec, const VectorizedPlan& plan, EncodeKind kind,
                 const RowBlock& row_block) {
  switch (kind) {
    case EncodeKind::simple:
      return launch<kSource, kRounding, EncodeKind::simple>(exec, plan, row_block);
    case EncodeKind::one_nan:
      return launch<kSource, kRounding, EncodeKind::one_nan>(exec, plan, row_block);
    case EncodeKind::one_zero:
      return launch<kSource, kRounding, EncodeKind::one_zero>(exec, plan, row_block);
    case EncodeKind::simple_integers:
      return launch<kSource, kRounding, EncodeKind::simple_integers>(exec, plan, row_block);
    default:
      return launch<kSource, kRounding, EncodeKind::quick>(exec, plan, row_block);
  }
}

template <DType kSource>
void launch_rounding(const Exec& exec, const VectorizedPlan& plan, EncodeKind kind,
                     const RowBlock& row_block) {
#ifndef OCTAVO_CUDA_ONE_CONFIG
  if (plan.job.encode.rounding == Rounding::stochastic)
    return launch_kind<kSource, Rounding::stochastic>(exec, plan, kind, row_block);
#endif
  launch_kind<kSource, Rounding::nearest_even>(exec, plan, kind, row_block);
}

void launch_source(const Exec& exec, const VectorizedPlan& plan, EncodeKind kind,
                   const RowBlock& row_block) {
  switch (plan.job.source.values.dtype) {
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::f32:
      return launch_rounding<DType::f32>(exec, plan, kind, row_block);
    case DType::f16:
      return launch_rounding<DType::f16>(exec, plan, kind, row_block);
#endif
    default:
      return launch_rounding<DType::bf16>(exec, plan, kind, row_block);
  }
}

bool takes(const QuantizeJob& job) {
  const DType dtype = job.source.values.dtype;
  const bool stochastic = job.encode.rounding == Rounding::stochastic;
#ifdef OCTAVO_CUDA_ONE_CONFIG
  if (dtype != DType::bf16 || stochastic) return false;
#endif
  return (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16) &&
         (stochastic ? job.encode.first_index % kVector == 0
                     : job.encode.rounding == Rounding::nearest_even) &&
         !job.hadamard_rowwise && job.policy == AmaxPolicy::max && job.counts == nullptr;
}

// The largest power of two that divides both, at most 32.
int group_of(std::int64_t tile_vectors, std::int64_t vectors) {
  return std::min(32, 1 << std::countr_zero(static_cast<std::uint64_t>(tile_vectors | vectors)));
}

}  // namespace

bool quantize_vectorized(const Exec& exec, const QuantizeJob& job) {
  VectorizedPlan plan{};
  plan.job = copy_job(job, false);
  const Matrix &values = job.source.values, &codes = job.rowwise.codes;
  const Tile tile = plan.job.tile;
  EncodeKind kind{};
  VectorPlan unused;
  if (!takes(job) || (tile.cols % kVector != 0 && tile.cols != codes.cols) ||
      !vector_plan(values, codes, &unused) ||
      !encode_plan(codes.format, job.encode, &plan.lane, &kind) || kind == EncodeKind::integers ||
      kind >= EncodeKind::shifts)
    return false;
  plan.vectors = codes.cols / kVector;
  plan.tile_vectors = tile.cols / kVector;
  plan.group = group_of(plan.tile_vectors, plan.vectors);
  plan.whole = plan.group == plan.tile_vectors && tile.rows == 1;
  plan.bits = stored_bits_of(codes);
  plan.keys = draw_keys(job.encode.seed);
  plan.most = plan.job.amax_of == AmaxOf::all       ? 0xFFFFFFFFu
              : plan.job.amax_of == AmaxOf::not_nan ? 0x7F800000u
                                                    : 0x7F7FFFFFu;
  const std::int64_t row_bytes = values.cols * element_bytes(values.dtype, {}) * tile.rows;
  const std::int64_t row_block_tiles =
      std::clamp<std::int64_t>(kRowBlockBytes / row_bytes, 1, plan.job.tile_rows);
  const std::int64_t most_tiles = row_block_tiles * plan.job.tile_cols;
  if (row_block_tiles * tile.rows * plan.vectors > 0x7FFFFFFF || tile.rows > 0x7FFFFFFF)
    return false;
  const bool find_amax = job.given_amax == nullptr && job.given_inv_scale == nullptr;
  const auto scale_bytes = static_cast<std::size_t>(most_tiles) * sizeof(TileScale);
  const Scratch scratch(exec,
                        scale_bytes + (find_amax ? static_cast<std::size_t>(most_tiles) * 4 : 0));
  plan.scales = scratch.as<TileScale>();
  if (find_amax) plan.amaxes = reinterpret_cast<std::uint32_t*>(scratch.as<char>() + scale_bytes);
  if (find_amax && plan.job.tile_rows * plan.job.tile_cols == 1) {
    OCTAVO_CUDA_CHECK(cudaMemsetAsync(plan.amaxes, 0, 4, stream_of(exec)));
    auto* const amax = reinterpret_cast<float*>(plan.amaxes);
    if (amax_vectorized(exec, job.source, plan.job.amax_of, amax)) {
      plan.job.given_amax = amax;
      plan.amaxes = nullptr;
    }
  }
  for (std::int64_t first = 0; first < plan.job.tile_rows; first += row_block_tiles) {
    const std::int64_t tiles = std::min(row_block_tiles, plan.job.tile_rows - first);
    const std::int64_t first_row = first * tile.rows;
    launch_source(exec, plan, kind,
                  {.first_row = first_row,
                   .rows = std::min(tiles * tile.rows, codes.rows - first_row),
                   .first_tile = first * plan.job.tile_cols,
                   .tiles = tiles * plan.job.tile_cols});
  }
  return true;
}

}  // namespace octavo::cuda
