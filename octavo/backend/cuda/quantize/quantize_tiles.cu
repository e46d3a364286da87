// Quantizes tiles that a thread block holds in registers: whole rows (per-row scale) and squares of
// 128 x 128 (block-scaled weights). One read, one reduction through shared memory, one write.
#include <algorithm>

#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/block_reduce.cuh"
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/quantize/fast_encode.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kSquare = 128;
constexpr int kSquareThreads = 256;
// Threads per row: f32 needs the registers of twice as many threads.
constexpr int most_threads(DType source) { return source == DType::f32 ? 512 : 1024; }

struct TilePlan {
  const unsigned char* from;
  unsigned char* to;
  unsigned char* scales;
  std::int64_t rows, vectors;  // vectors: per row
  std::int64_t from_pitch, to_pitch, scale_pitch, scale_stride;
  FastScale scale;
  bool wide;
};

template <DType kSource, bool kE5m2>
__device__ __forceinline__ uint2 scaled_codes(const Raw<kSource>& raw, float factor) {
  float u[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) u[i] = any_nan_value<kSource>(raw, i) * factor;
  return hardware_eight<kE5m2>(u);
}

// The amax of the values that a thread block holds.
template <FastKind kKind, DType kSource, int kCount>
__device__ __forceinline__ std::uint32_t held_amax(const Raw<kSource> (&raw)[kCount]) {
  std::uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) amax = max(amax, vector_amax<kSource>(raw[i]));
  amax = block_amax(amax);
  if (kKind != FastKind::inverse || amax <= 0x7F800000u) return amax;  // drops NaN
  amax = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) amax = max(amax, vector_amax<kSource>(without_nan(raw[i])));
  __shared__ std::uint32_t again[32];
  return block_amax(amax, again);
}

// A NaN factor makes every product NaN, whose code is that of a poisoned tile.
template <FastKind kKind>
__device__ __forceinline__ float stored_factor(const TilePlan& plan, std::uint32_t amax,
                                               unsigned char* scale_to) {
  const MadeScale made = fast_tile_scale<kKind>(plan.scale, amax);
  if (threadIdx.x == 0) *reinterpret_cast<std::uint32_t*>(scale_to) = made.bits;
  return made.poisoned ? __uint_as_float(0x7FC00000u) : made.factor;
}

// kPairs: pairs of vectors per thread.
template <DType kSource, bool kE5m2, FastKind kKind, int kPairs>
__global__ void __launch_bounds__(most_threads(kSource))
    rows_kernel(const __grid_constant__ TilePlan plan) {
  const std::int64_t row = blockIdx.x;
  const unsigned char* from = plan.from + row * plan.from_pitch;
  Raw<kSource> raw[kPairs * 2] = {};
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const std::int64_t pair = static_cast<std::int64_t>(p) * blockDim.x + threadIdx.x;
#pragma unroll
    for (int v = 0; v < 2; ++v)
      if (pair * 2 + v < plan.vectors) raw[p * 2 + v] = load_raw<kSource>(from, pair * 2 + v);
  }
  const float factor =
      stored_factor<kKind>(plan, held_amax<kKind>(raw), plan.scales + row * plan.scale_pitch);
  unsigned char* to = plan.to + row * plan.to_pitch;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const std::int64_t pair = static_cast<std::int64_t>(p) * blockDim.x + threadIdx.x;
    if (pair * 2 < plan.vectors)
      store_pair(to, pair, scaled_codes<kSource, kE5m2>(raw[p * 2], factor),
                 scaled_codes<kSource, kE5m2>(raw[p * 2 + 1], factor), plan.wide,
                 pair * 2 + 1 < plan.vectors);
  }
}

template <DType kSource, bool kE5m2, FastKind kKind>
__global__ void __launch_bounds__(kSquareThreads)
    squares_kernel(const __grid_constant__ TilePlan plan) {
  constexpr int kAcross = kSquare / kVector;       // vectors in a row of the square
  constexpr int kDown = kSquareThreads / kAcross;  // rows at a time
  constexpr int kSteps = kSquare / kDown;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kSquare + threadIdx.x / kAcross;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kAcross + threadIdx.x % kAcross;
  Raw<kSource> raw[kSteps] = {};
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    if (row + i * kDown < plan.rows && at < plan.vectors)
      raw[i] = load_raw<kSource>(plan.from + (row + i * kDown) * plan.from_pitch, at);
  const float factor = stored_factor<kKind>(
      plan, held_amax<kKind>(raw),
      plan.scales + blockIdx.y * plan.scale_pitch + blockIdx.x * plan.scale_stride);
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
    if (row + i * kDown < plan.rows && at < plan.vectors)
      store_once(reinterpret_cast<uint2*>(plan.to + (row + i * kDown) * plan.to_pitch) + at,
                 scaled_codes<kSource, kE5m2>(raw[i], factor));
}

bool tile_plan(const QuantizeJob& job, TilePlan* plan) {
  const Matrix &values = job.source.values, &codes = job.rowwise.codes,
               &scales = job.rowwise.scales;
  VectorPlan vectors;
  if ((!is_usual(job) && !is_usual_te(job)) || job.given_inv_scale != nullptr ||
      fast_element(codes.format) > FastElement::e5m2 || scales.dtype != DType::f32 ||
      !fast_scale(job.scale, codes.format, &plan->scale) || !vector_plan(values, codes, &vectors))
    return false;
  plan->from = static_cast<const unsigned char*>(values.data);
  plan->to = static_cast<unsigned char*>(codes.data);
  plan->scales = static_cast<unsigned char*>(scales.data);
  plan->rows = values.rows;
  plan->vectors = values.cols / kVector;
  plan->from_pitch = values.row_pitch;
  plan->to_pitch = codes.row_pitch;
  plan->scale_pitch = scales.row_pitch;
  plan->scale_stride = scales.col_stride;
  plan->wide = has_aligned_rows(codes, 16);
  return true;
}

struct Call {
  const Exec& exec;
  const TilePlan& plan;
  bool squares;
  unsigned threads;
  int pairs;  // per thread
  dim3 grid;
};

template <DType kSource, bool kE5m2, FastKind kKind>
bool launch(const Call& call) {
  const cudaStream_t stream = stream_of(call.exec);
  if (call.squares) {
    squares_kernel<kSource, kE5m2, kKind><<<call.grid, kSquareThreads, 0, stream>>>(call.plan);
  } else if (call.pairs == 1) {
    rows_kernel<kSource, kE5m2, kKind, 1><<<call.grid, call.threads, 0, stream>>>(call.plan);
  } else {
    rows_kernel<kSource, kE5m2, kKind, 2><<<call.grid, call.threads, 0, stream>>>(call.plan);
  }
  OCTAVO_CUDA_LAUNCHED("rows_kernel or squares_kernel");
  return true;
}

template <DType kSource>
bool launch_source(const Call& call, bool is_e5m2) {
  if (call.plan.scale.kind == FastKind::quotient)
    return is_e5m2 ? launch<kSource, true, FastKind::quotient>(call)
                   : launch<kSource, false, FastKind::quotient>(call);
#ifndef OCTAVO_CUDA_ONE_CONFIG
  if (call.plan.scale.kind == FastKind::inverse)
    return is_e5m2 ? launch<kSource, true, FastKind::inverse>(call)
                   : launch<kSource, false, FastKind::inverse>(call);
  if (call.plan.scale.kind == FastKind::power_f32)
    return is_e5m2 ? launch<kSource, true, FastKind::power_f32>(call)
                   : launch<kSource, false, FastKind::power_f32>(call);
#endif
  return false;
}

bool launch_any(const Call& call, const QuantizeJob& job) {
  const bool is_e5m2 = fast_element(job.rowwise.codes.format) == FastElement::e5m2;
  switch (job.source.values.dtype) {
    case DType::bf16:
      return launch_source<DType::bf16>(call, is_e5m2);
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::f32:
      return launch_source<DType::f32>(call, is_e5m2);
    case DType::f16:
      return launch_source<DType::f16>(call, is_e5m2);
#endif
    default:
      return false;
  }
}

}  // namespace

bool quantize_rows(const Exec& exec, const QuantizeJob& job) {
  TilePlan plan{};
  if (job.rowwise.tile.rows != 1 || job.rowwise.scales.cols != 1 || !tile_plan(job, &plan))
    return false;
  // Two pairs of vectors per thread for long rows: enough loads in flight, few warps to wait for.
  const std::int64_t pairs = (plan.vectors + 1) / 2;
  const std::int64_t warps = std::clamp<std::int64_t>((pairs / 2 + 31) / 32, 1,
                                                      most_threads(job.source.values.dtype) / 32);
  const auto threads = static_cast<unsigned>(warps * 32);
  const std::int64_t each = (pairs + threads - 1) / threads;
  if (each > 2 || plan.rows > 0x7FFFFFFF) return false;
  return launch_any(
      {exec, plan, false, threads, static_cast<int>(each), dim3(static_cast<unsigned>(plan.rows))},
      job);
}

bool quantize_squares(const Exec& exec, const QuantizeJob& job) {
  TilePlan plan{};
  if (job.rowwise.tile != Tile{kSquare, kSquare} || !tile_plan(job, &plan)) return false;
  const std::int64_t down = (plan.rows + kSquare - 1) / kSquare;
  if (down > 65535) return false;
  const dim3 grid(blocks_for(job.source.values.cols, kSquare), static_cast<unsigned>(down));
  return launch_any({exec, plan, true, kSquareThreads, 0, grid}, job);
}

}  // namespace octavo::cuda
