// Quantizes to MX codes with exponents aligned by row, in one pass: blocks of 32 get their
// exponents as in quantize_1d_blocks.cu, the exponents of a row are reduced to their maximum, and
// codes are rescaled before they are stored. A row is held in registers by a warp, or by a thread
// block. Floor: bytes over the copy rate.
#include <algorithm>

#include "octavo/backend/align_job.h"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/block_reduce.cuh"
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/quantize/fast_encode.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.cuh"
#include "octavo/backend/cuda/quantize/mx_rescale.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kMaxBlockThreads = 512;
constexpr int kWarpRowThreads = 256;  // where a warp has a row

struct AlignedPlan {
  const unsigned char* from;
  unsigned char* to;
  float* scales;  // contiguous
  std::int64_t rows, from_pitch, to_pitch;
  int vectors;     // of eight values in a row
  bool warp_rows;  // one warp per row, else one thread block
  bool wide;       // sixteen codes can be stored at an aligned address
  FastScale scale;
  unsigned long long* changed;
};

// The exponent of a block of 32, which two lanes hold, and the factor of its values.
template <DType kSource>
__device__ __forceinline__ MadeScale block_scale(const AlignedPlan& plan,
                                                 const Raw<kSource> (&raw)[2]) {
  const auto block_most = [](const Raw<kSource>& left, const Raw<kSource>& right) {
    const std::uint32_t most = max(vector_amax<kSource>(left), vector_amax<kSource>(right));
    return max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
  };
  std::uint32_t most = block_most(raw[0], raw[1]);
  if (plan.scale.drops_nan && __any_sync(0xFFFFFFFFu, most > 0x7F800000u))
    most = block_most(without_nan(raw[0]), without_nan(raw[1]));
  return fast_tile_scale<FastKind::e8m0>(plan.scale, most);
}

template <DType kSource, bool kE5m2>
__device__ __forceinline__ uint4 encoded(const AlignedPlan& plan, const Raw<kSource> (&raw)[2],
                                         const MadeScale& made) {
  uint2 codes[2];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float u[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) u[i] = any_nan_value<kSource>(raw[v], i) * made.factor;
    codes[v] = hardware_eight<kE5m2>(u);
    if (made.poisoned) {
      const std::uint32_t poison = plan.scale.poison_code * 0x01010101u;
      codes[v] = {poison, poison};
    }
  }
  return {codes[0].x, codes[0].y, codes[1].x, codes[1].y};
}

// A thread has kPairs times sixteen values of a row. No lane may exit before the last shuffle.
template <DType kSource, bool kE5m2, int kPairs, bool kCounts>
__global__ void __launch_bounds__(kMaxBlockThreads)
    quantize_aligned_kernel(const __grid_constant__ AlignedPlan plan) {
  __shared__ std::uint32_t of_warp[32];
  const int threads = plan.warp_rows ? 32 : static_cast<int>(blockDim.x);  // per row
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t row =
      plan.warp_rows
          ? static_cast<std::int64_t>(blockIdx.x) * (kWarpRowThreads / 32) + threadIdx.x / 32
          : static_cast<std::int64_t>(blockIdx.x);
  const bool inside = row < plan.rows;
  const unsigned char* from = plan.from + row * plan.from_pitch;
  Raw<kSource> raw[kPairs][2] = {};
#pragma unroll
  for (int p = 0; p < kPairs; ++p)
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int vector = (p * threads + thread) * 2 + v;
      if (inside && vector < plan.vectors) raw[p][v] = load_raw<kSource>(from, vector);
    }

  MadeScale made[kPairs];
  std::uint32_t top = 0;
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    made[p] = block_scale<kSource>(plan, raw[p]);
    // A tile of zeros has the smallest exponent, so elements beyond the row do not raise the
    // maximum.
    top = max(top, made[p].bits);
  }
  // The warp reduction runs unconditionally: if this instruction is in a branch of its own, nvcc
  // 13.0 guards it with a wrong predicate.
  top = __reduce_max_sync(0xFFFFFFFFu, top);
  if (!plan.warp_rows) top = amax_of_warps(top, of_warp);
  if (inside && thread == 0) plan.scales[row] = power_of(top);

  unsigned changed = 0;
  auto* to = reinterpret_cast<uint2*>(plan.to + row * plan.to_pitch);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    uint4 codes = encoded<kSource, kE5m2>(plan, raw[p], made[p]);
    const std::uint32_t down = top - made[p].bits;
    // A NaN scale becomes that of its whole row.
    if (down > 0 && top != 255) codes = Rescaling<kE5m2>(down)(codes, kCounts ? &changed : nullptr);
    const int vector = (p * threads + thread) * 2;
    if (!inside || vector >= plan.vectors) continue;
    store_pair(reinterpret_cast<unsigned char*>(to), p * threads + thread, {codes.x, codes.y},
               {codes.z, codes.w}, plan.wide, vector + 1 < plan.vectors);
  }
  if constexpr (kCounts) count_changed(changed, plan.changed);
}

template <DType kSource, bool kE5m2, int kPairs>
void launch(const Exec& exec, const AlignedPlan& plan, unsigned blocks, int threads) {
  const auto kernel = plan.changed != nullptr
                          ? quantize_aligned_kernel<kSource, kE5m2, kPairs, true>
                          : quantize_aligned_kernel<kSource, kE5m2, kPairs, false>;
  kernel<<<blocks, static_cast<unsigned>(threads), 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("quantize_aligned_kernel");
}

// Two pairs of vectors per thread for long rows: enough loads in flight, few warps to wait for.
// False if a row is too long.
template <DType kSource, bool kE5m2>
bool launch_row(const Exec& exec, AlignedPlan plan) {
  const int pairs = (plan.vectors + 1) / 2;
  const int each = pairs <= 32 ? 1 : pairs <= 2 * kMaxBlockThreads ? 2 : 4;
  const int threads = ((pairs + each - 1) / each + 31) / 32 * 32;
  if (threads > kMaxBlockThreads) return false;
  plan.warp_rows = threads == 32;
  const unsigned blocks = blocks_for(plan.rows, plan.warp_rows ? kWarpRowThreads / 32 : 1);
  const int all = plan.warp_rows ? kWarpRowThreads : threads;
  if (each == 1) launch<kSource, kE5m2, 1>(exec, plan, blocks, all);
  if (each == 2) launch<kSource, kE5m2, 2>(exec, plan, blocks, all);
  if (each == 4) launch<kSource, kE5m2, 4>(exec, plan, blocks, all);
  return true;
}

template <DType kSource>
bool launch_element(const Exec& exec, const AlignedPlan& plan, bool e5m2) {
#ifdef OCTAVO_CUDA_ONE_CONFIG
  return !e5m2 && launch_row<kSource, false>(exec, plan);
#else
  return e5m2 ? launch_row<kSource, true>(exec, plan) : launch_row<kSource, false>(exec, plan);
#endif
}

}  // namespace

bool quantize_aligned(const Exec& exec, const QuantizeJob& mx, const QuantizedMatrix& to,
                      std::int64_t* changed) {
  const Matrix &values = mx.source.values, &codes = to.codes;
  constexpr std::int64_t kMaxCols = std::int64_t{4} * 2 * kVector * kMaxBlockThreads;
  VectorPlan vectors;
  AlignedPlan plan{};
  if ((!is_usual(mx) && !is_usual_te(mx)) || mx.given_inv_scale != nullptr || mx.amax != nullptr ||
      to.tile.cols == kAlignRun || values.cols > kMaxCols || values.cols == 0 || values.rows == 0 ||
      (codes.format != e4m3fn && codes.format != e5m2) ||
      !fast_scale(mx.scale, codes.format, &plan.scale) || plan.scale.kind != FastKind::e8m0 ||
      !vector_plan(values, codes, &vectors))
    return false;
  const Scope scope(exec);
  plan.from = static_cast<const unsigned char*>(values.data);
  plan.to = static_cast<unsigned char*>(codes.data);
  plan.scales = static_cast<float*>(to.scales.data);
  plan.rows = values.rows;
  plan.from_pitch = values.row_pitch;
  plan.to_pitch = codes.row_pitch;
  plan.vectors = static_cast<int>(values.cols / kVector);
  plan.wide = has_aligned_rows(codes, 16);
  plan.changed = reinterpret_cast<unsigned long long*>(changed);
  const bool is_e5m2 = codes.format == e5m2;
  switch (values.dtype) {
    case DType::bf16:
      return launch_element<DType::bf16>(exec, plan, is_e5m2);
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::f32:
      return launch_element<DType::f32>(exec, plan, is_e5m2);
    case DType::f16:
      return launch_element<DType::f16>(exec, plan, is_e5m2);
#endif
    default:
      return false;
  }
}

}  // namespace octavo::cuda
