// LayerNorm and RMSNorm along rows: a persistent grid, each block with many rows. Floor: bytes over
// the copy rate, as for the quantizer alone; some eleven instructions per value are half of what
// the SMs can issue in that time.
#include <algorithm>
#include <cstdint>

#include "octavo/backend/cuda/produce/row_output.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

// LayerNorm and RMSNorm kernel: one block per row, many rows one after another. While a row is
// summed, normalized and stored, the next one is being loaded into registers, so that loads overlap
// the barriers of the sums. A thread keeps the weights of its own columns for all rows, as f32 in
// shared memory that no other thread reads.

inline constexpr int kNormPairs = 2;  // of vectors, per thread
inline constexpr int kNormQuads = kNormPairs * kRowValues / 4;
// One quad of padding per thread, so that eight neighbouring threads have no bank conflicts.
inline constexpr int kKeptQuads = kNormQuads + 1;

// Loads eight elements of a weight or bias, of any of three types.
__device__ __forceinline__ void load_eight(const Matrix& from, std::int64_t vector,
                                           float (&to)[kVector]) {
  if (from.dtype == DType::f32) {
    const Raw<DType::f32> raw = load_raw<DType::f32>(from.data, vector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = any_nan_value<DType::f32>(raw, i);
  } else if (from.dtype == DType::bf16) {
    const Raw<DType::bf16> raw = load_raw<DType::bf16>(from.data, vector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = any_nan_value<DType::bf16>(raw, i);
  } else {
    const Raw<DType::f16> raw = load_raw<DType::f16>(from.data, vector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = any_nan_value<DType::f16>(raw, i);
  }
}

// Copies a thread's part of a weight or bias, plus `more`, to shared memory that it alone reads.
__device__ __forceinline__ void keep_columns(const Matrix& from, float more, float absent,
                                             const int (&pairs)[kNormPairs],
                                             const bool (&has)[kNormPairs], float4* kept) {
#pragma unroll
  for (int p = 0; p < kNormPairs; ++p) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      float eight[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) eight[i] = absent;
      if (has[p] && from.data != nullptr) {
        load_eight(from, pairs[p] * 2 + v, eight);
#pragma unroll
        for (int i = 0; i < kVector; ++i) eight[i] += more;
      }
      kept[p * 4 + v * 2] = {eight[0], eight[1], eight[2], eight[3]};
      kept[p * 4 + v * 2 + 1] = {eight[4], eight[5], eight[6], eight[7]};
    }
  }
}

// Four partial sums, then one.
__device__ __forceinline__ float four_sums(const float (&sums)[4]) {
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Block sum, the same bits for every thread: a tree over lanes, then over warps. `of_warp` has
// zeros where there is no warp; it may be rewritten only after another barrier.
template <int kWarps>
__device__ __forceinline__ float block_total(float mine, float* of_warp) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, step);
  if (blockDim.x == 32) return mine;
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  float sums[kWarps / 4];
#pragma unroll
  for (int i = 0; i < kWarps / 4; ++i) {
    const float4 four = reinterpret_cast<const float4*>(of_warp)[i];
    sums[i] = (four.x + four.y) + (four.z + four.w);
  }
#pragma unroll
  for (int i = 1; i < kWarps / 4; ++i) sums[0] += sums[i];
  return sums[0];
}

template <DType kSource>
__device__ __forceinline__ void load_pair(const unsigned char* from, int pair, bool has,
                                          Raw<kSource> (&raw)[2]) {
#pragma unroll
  for (int v = 0; v < 2; ++v)
    if (has) raw[v] = load_raw<kSource>(from, pair * 2 + v);
}

// Resident blocks of most_threads per SM, for __launch_bounds__.
constexpr int norm_blocks(DType source, int most_threads) {
  return most_threads > 256 ? 1 : source == DType::f32 ? 2 : 3;
}

template <DType kSource, bool kCentred, RowOutput kOutput, int kMaxBlockThreads>
__global__ void __launch_bounds__(kMaxBlockThreads, norm_blocks(kSource, kMaxBlockThreads))
    norm_rows_kernel(const __grid_constant__ RowPlan plan, float inv_n, float epsilon) {
  constexpr int kValues = kNormPairs * kRowValues, kWarps = kMaxBlockThreads / 32;
  extern __shared__ float4 columns[];  // weights, then biases
  // Double-buffered by the parity of the row, so that one barrier between writing and reading is
  // enough.
  __shared__ alignas(16) float of_warp[2][2][kWarps];
  __shared__ std::uint32_t most_of_warp[2][32];
  const Producer& producer = plan.producer;
  const bool biased = producer.bias.data != nullptr;
  float4* const weights = columns + threadIdx.x * kKeptQuads;
  float4* const biases = weights + blockDim.x * kKeptQuads;
  int pairs[kNormPairs];
  bool has[kNormPairs];
#pragma unroll
  for (int p = 0; p < kNormPairs; ++p) {
    pairs[p] = p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    has[p] = pairs[p] < static_cast<int>(plan.cols) / kRowValues;
  }
  Raw<kSource> raw[kNormPairs][2] = {};
  const auto rows = static_cast<int>(plan.rows), step = static_cast<int>(gridDim.x);
  auto row = static_cast<int>(blockIdx.x);
  const unsigned char* from = plan.from + row * plan.from_pitch;
  RowTargets to = {plan.to + row * plan.to_pitch, plan.scales + row * plan.scale_pitch, row == 0};
#pragma unroll
  for (int p = 0; p < kNormPairs; ++p) load_pair<kSource>(from, pairs[p], has[p], raw[p]);
  keep_columns(producer.weight, producer.zero_centred ? 1.0F : 0.0F, 1.0F, pairs, has, weights);
  if (biased) keep_columns(producer.bias, 0.0F, 0.0F, pairs, has, biases);
  for (unsigned i = threadIdx.x; i < 4 * kWarps; i += blockDim.x) of_warp[0][0][i] = 0.0F;
  __syncthreads();

  for (int odd = 0; row < rows; odd ^= 1) {
    float x[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      x[i] = any_nan_value<kSource>(raw[i / kRowValues][i / kVector % 2], i % kVector);
    // One half of the next row is loaded now, the other after the sums: issuing all loads at once
    // is slower.
    from += step * plan.from_pitch;
    if (row + step < rows) load_pair<kSource>(from, pairs[0], has[0], raw[0]);

    float mean = 0.0F;
    if constexpr (kCentred) {
      float sums[4] = {};
#pragma unroll
      for (int i = 0; i < kValues; ++i) sums[i % 4] += x[i];  // zeros beyond the end
      mean = block_total<kWarps>(four_sums(sums), of_warp[0][odd]) * inv_n;
#pragma unroll
      for (int p = 0; p < kNormPairs; ++p) {
        const float centre = has[p] ? mean : 0.0F;
#pragma unroll
        for (int i = 0; i < kRowValues; ++i) x[p * kRowValues + i] -= centre;
      }
    }
    float squares[4] = {};
#pragma unroll
    for (int i = 0; i < kValues; ++i) squares[i % 4] = __fmaf_rn(x[i], x[i], squares[i % 4]);
    const float variance = block_total<kWarps>(four_sums(squares), of_warp[1][odd]) * inv_n;
    const float inv_std = rsqrtf(variance + epsilon);
    if (row + step < rows) {
#pragma unroll
      for (int p = 1; p < kNormPairs; ++p) load_pair<kSource>(from, pairs[p], has[p], raw[p]);
    }
    if (threadIdx.x == 0) {
      if (producer.mean != nullptr) producer.mean[row] = mean;
      if (producer.inv_std != nullptr) producer.inv_std[row] = inv_std;
    }
#pragma unroll
    for (int q = 0; q < kNormQuads; ++q) {
      const float4 weight = weights[q];
      const float factor = has[q / 4] ? inv_std : 0.0F;  // zero times Inf would not be zero
      float* four = x + 4 * q;
      four[0] = four[0] * factor * weight.x;
      four[1] = four[1] * factor * weight.y;
      four[2] = four[2] * factor * weight.z;
      four[3] = four[3] * factor * weight.w;
    }
    if (biased) {
#pragma unroll
      for (int q = 0; q < kNormQuads; ++q) {
        const float4 bias = biases[q];
        x[4 * q] += bias.x;
        x[4 * q + 1] += bias.y;
        x[4 * q + 2] += bias.z;
        x[4 * q + 3] += bias.w;
      }
    }
    store_row<kOutput, kNormPairs>(plan, to, pairs, has, x, most_of_warp[odd]);
    row += step;
    to = {to.codes + step * plan.to_pitch, to.scales + step * plan.scale_pitch, false};
  }
}
namespace {

constexpr std::int64_t kSharedOfDevice = 220 * 1024, kSharedUnasked = 48 * 1024;

int multiprocessors(const Exec& exec) {
  int count = 0;
  OCTAVO_CUDA_CHECK(
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, exec.device.index));
  return count;
}

template <DType kSource, bool kCentred, RowOutput kOutput, int kMaxBlockThreads>
void launch(const Exec& exec, const RowPlan& plan) {
  const std::int64_t pairs = plan.cols / kRowValues;
  const std::int64_t threads = (pairs + kNormPairs * 32 - 1) / (kNormPairs * 32) * 32;
  const bool biased = plan.producer.bias.data != nullptr;
  const std::int64_t shared = threads * kKeptQuads * 16 * (biased ? 2 : 1);
  const std::int64_t of_one =
      std::min({kSharedOfDevice / (shared + 2048), std::int64_t{32},
                norm_blocks(kSource, kMaxBlockThreads) * kMaxBlockThreads / threads});
  const std::int64_t blocks =
      std::min(plan.rows, std::max<std::int64_t>(of_one, 1) * multiprocessors(exec));
  const auto kernel = norm_rows_kernel<kSource, kCentred, kOutput, kMaxBlockThreads>;
  if (shared > kSharedUnasked)
    OCTAVO_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared)));
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
           static_cast<std::size_t>(shared), stream_of(exec)>>>(
      plan, 1.0F / static_cast<float>(plan.cols), static_cast<float>(plan.producer.epsilon));
  OCTAVO_CUDA_LAUNCHED("norm_rows_kernel");
}

template <DType kSource, bool kCentred, RowOutput kOutput>
void launch_size(const Exec& exec, const RowPlan& plan) {
  constexpr int kHalf = kRowThreads / 2;
  if (plan.cols <= std::int64_t{kHalf} * kNormPairs * kRowValues)
    return launch<kSource, kCentred, kOutput, kHalf>(exec, plan);
  launch<kSource, kCentred, kOutput, kRowThreads>(exec, plan);
}

}  // namespace

void norm_rows(const Exec& exec, const RowPlan& plan, DType source, RowOutput output) {
  with_source_and_output(source, output, [&]<DType kSource, RowOutput kOutput>() {
    plan.producer.kind == ProducerKind::layer_norm
        ? launch_size<kSource, true, kOutput>(exec, plan)
        : launch_size<kSource, false, kOutput>(exec, plan);
  });
}

}  // namespace octavo::cuda
