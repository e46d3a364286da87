// Per-tensor scaling. Current scaling: an amax pass, then a cast that runs backwards, so that what
// the first pass read last is read first, while it is still in L2. Delayed scaling: the cast alone,
// which finds the amax on its way. Also the amax of a matrix by itself.
#include <algorithm>

#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/block_reduce.cuh"
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/quantize/fast_encode.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 8;  // vectors in flight
constexpr int kPairs = 2;   // the same, in pairs

// Canonical NaN for every NaN.
__device__ __forceinline__ std::uint32_t one_nan(std::uint32_t bits) {
  return bits > 0x7F800000u ? 0x7FC00000u : bits;
}
__device__ __forceinline__ void raise(float* amax, std::uint32_t bits) {
  if (bits != 0) atomicMax(reinterpret_cast<std::uint32_t*>(amax), one_nan(bits));
}

template <DType kSource>
__device__ __forceinline__ std::uint32_t limited_amax(const Raw<kSource>& raw, std::uint32_t most) {
  std::uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const std::uint32_t bits = f32_bits<kSource>(raw, i) & 0x7FFFFFFFu;
    amax = max(amax, bits > most ? 0u : bits);
  }
  return amax;
}

// Magnitudes above `most` are ignored.
template <DType kSource, bool kAll>
__global__ void __launch_bounds__(kThreads)
    amax_kernel(const unsigned char* from, std::int64_t rows, std::int64_t vectors,
                std::int64_t pitch, std::uint32_t most, float* amax) {
  std::uint32_t mine = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const unsigned char* start = from + row * pitch;
    for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
         at < vectors; at += step * kUnroll) {
      Raw<kSource> raw[kUnroll] = {};
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (at + u * step < vectors) raw[u] = load_raw<kSource>(start, at + u * step);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        mine = max(mine, kAll ? vector_amax<kSource>(raw[u]) : limited_amax<kSource>(raw[u], most));
    }
  }
  mine = block_amax(mine);
  if (threadIdx.x == 0) raise(amax, mine);
}

struct TensorPlan {
  const unsigned char* from;
  unsigned char* to;
  VectorPlan vectors;
  FastScale scale;
  const float *amax, *inv_scale;  // exactly one is set
  float* scale_to;
  float* amax_out;
  bool keep_nan_sign;
  bool drops_nan;  // from the amax that is found on the way
};

// With `signs` NaN keeps the sign of its value; numbers have theirs already.
template <DType kSource, bool kE5m2>
__device__ __forceinline__ uint2 scaled_eight(const Raw<kSource>& raw, float factor, bool signs) {
  float x[kVector], u[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    x[i] = __uint_as_float(f32_bits<kSource>(raw, i));
    u[i] = x[i] * factor;
  }
  uint2 codes = hardware_eight<kE5m2>(u);
  if (signs) put_signs(codes, x);
  return codes;
}

template <DType kSource, bool kE5m2, bool kGiven>
__global__ void __launch_bounds__(kThreads) tensor_kernel(const __grid_constant__ TensorPlan plan) {
  std::uint32_t bits;
  float factor;
  if constexpr (kGiven) {
    factor = *plan.inv_scale;
    bits = __float_as_uint(1.0F / factor);
  } else {
    const std::uint32_t amax = __float_as_uint(*plan.amax);
    const MadeScale made = plan.scale.kind == FastKind::inverse
                               ? fast_tile_scale<FastKind::inverse>(plan.scale, amax)
                               : fast_tile_scale<FastKind::quotient>(plan.scale, amax);
    bits = made.bits;
    factor = made.poisoned ? __uint_as_float(0x7FC00000u) : made.factor;
  }
  const std::int64_t block = static_cast<std::int64_t>(gridDim.x) - 1 - blockIdx.x;
  const std::int64_t first = block * (kThreads * kPairs) + threadIdx.x, end = plan.vectors.vectors;
  const unsigned char* from = plan.from + blockIdx.y * plan.vectors.from_pitch;
  unsigned char* to = plan.to + blockIdx.y * plan.vectors.to_pitch;
  if (first == 0 && blockIdx.y == 0) {
    *plan.scale_to = __uint_as_float(bits);
    if (!kGiven && plan.amax_out != nullptr) raise(plan.amax_out, __float_as_uint(*plan.amax));
  }
  Raw<kSource> raw[kPairs][2] = {};
#pragma unroll
  for (int u = 0; u < kPairs; ++u) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const std::int64_t at = (first + u * kThreads) * 2 + v;
      if (at < end) raw[u][v] = load_raw<kSource>(from, at);
    }
  }
  if constexpr (kGiven) {
    if (plan.amax_out != nullptr) {
      std::uint32_t mine = 0;
#pragma unroll
      for (int u = 0; u < kPairs; ++u)
        mine = max(mine, max(vector_amax<kSource>(raw[u][0]), vector_amax<kSource>(raw[u][1])));
      if (plan.drops_nan && mine > 0x7F800000u) {
        mine = 0;
#pragma unroll
        for (int u = 0; u < kPairs; ++u)
          mine = max(mine, max(limited_amax<kSource>(raw[u][0], 0x7F800000u),
                               limited_amax<kSource>(raw[u][1], 0x7F800000u)));
      }
      mine = block_amax(mine);
      if (threadIdx.x == 0) raise(plan.amax_out, mine);
    }
  }
#pragma unroll
  for (int u = 0; u < kPairs; ++u) {
    const std::int64_t pair = first + u * kThreads;
    if (pair * 2 >= end) break;
    const bool signs = kGiven && plan.keep_nan_sign;
    store_pair(to, pair, scaled_eight<kSource, kE5m2>(raw[u][0], factor, signs),
               scaled_eight<kSource, kE5m2>(raw[u][1], factor, signs), plan.vectors.wide,
               pair * 2 + 1 < end);
  }
}

template <DType kSource, bool kE5m2>
void launch_tensor(const Exec& exec, const TensorPlan& plan) {
  const dim3 grid(blocks_for((plan.vectors.vectors + 1) / 2, kThreads * kPairs),
                  static_cast<unsigned>(plan.vectors.rows));
  if (plan.inv_scale != nullptr) {
    tensor_kernel<kSource, kE5m2, true><<<grid, kThreads, 0, stream_of(exec)>>>(plan);
  } else {
    tensor_kernel<kSource, kE5m2, false><<<grid, kThreads, 0, stream_of(exec)>>>(plan);
  }
  OCTAVO_CUDA_LAUNCHED("tensor_kernel");
}

template <DType kSource>
void launch_amax(const Exec& exec, const Matrix& values, AmaxOf of, float* amax) {
  const std::int64_t row_vectors = values.cols / kVector;
  const bool dense = values.rows == 1 || values.row_pitch == row_vectors * Raw<kSource>::kBytes;
  const std::int64_t rows = dense ? 1 : values.rows,
                     vectors = dense ? values.rows * row_vectors : row_vectors;
  const dim3 grid(static_cast<unsigned>(std::clamp<std::int64_t>(vectors / (kThreads * kUnroll), 1,
                                                                 dense ? 1 << 20 : 16)),
                  static_cast<unsigned>(std::min<std::int64_t>(rows, 1024)));
  const auto* from = static_cast<const unsigned char*>(values.data);
  if (of == AmaxOf::all) {
    amax_kernel<kSource, true>
        <<<grid, kThreads, 0, stream_of(exec)>>>(from, rows, vectors, values.row_pitch, 0u, amax);
  } else {
    const std::uint32_t most = of == AmaxOf::not_nan ? 0x7F800000u : 0x7F7FFFFFu;
    amax_kernel<kSource, false>
        <<<grid, kThreads, 0, stream_of(exec)>>>(from, rows, vectors, values.row_pitch, most, amax);
  }
  OCTAVO_CUDA_LAUNCHED("amax_kernel");
}

}  // namespace

bool amax_vectorized(const Exec& exec, const QuantizeSource& source, AmaxOf of, float* amax) {
  const Matrix& values = source.values;
  if (source.is_quantized() || !is_value(values.dtype) || !has_vectors(values)) return false;
  switch (values.dtype) {
    case DType::f32:
      launch_amax<DType::f32>(exec, values, of, amax);
      return true;
    case DType::bf16:
      launch_amax<DType::bf16>(exec, values, of, amax);
      return true;
    case DType::f16:
      launch_amax<DType::f16>(exec, values, of, amax);
      return true;
    default:
      return false;
  }
}

bool quantize_tensor(const Exec& exec, const QuantizeJob& job) {
  const Matrix &values = job.source.values, &codes = job.rowwise.codes;
  const bool given = job.given_inv_scale != nullptr;
  QuantizeJob plain = job;
  plain.given_amax = nullptr;
  if (given) {  // rule and arith do not matter then
    plain.scale = {};
    if (plain.encode.nan_code == NanCode::positive_ones)
      plain.encode.nan_code = NanCode::signed_ones;
  }
  TensorPlan plan{};
  if (!job.rowwise.wanted() || job.columnwise.wanted() || !has_one_tile(job.rowwise) ||
      (!is_usual(plain) && !is_usual_te(plain)) || job.rowwise.scales.dtype != DType::f32 ||
      fast_element(codes.format) > FastElement::e5m2 ||
      !vector_plan(values, codes, &plan.vectors) || plan.vectors.rows > 65535)
    return false;
  if (!given && (!fast_scale(job.scale, codes.format, &plan.scale) ||
                 (plan.scale.kind != FastKind::quotient && plan.scale.kind != FastKind::inverse)))
    return false;
  const bool find_amax = !given && job.given_amax == nullptr;
  const Scratch found(exec, find_amax ? sizeof(float) : 0);
  if (find_amax) {
    found.clear();
    (void)amax_vectorized(exec, job.source, amax_of(job.scale), found.as<float>());
  }
  plan.from = static_cast<const unsigned char*>(values.data);
  plan.to = static_cast<unsigned char*>(codes.data);
  plan.amax = find_amax ? found.as<float>() : job.given_amax;
  plan.inv_scale = job.given_inv_scale;
  plan.scale_to = static_cast<float*>(job.rowwise.scales.data);
  plan.amax_out = job.amax;
  plan.keep_nan_sign = job.encode.nan_code == NanCode::signed_ones;
  plan.drops_nan = amax_of(job.scale) == AmaxOf::not_nan;
  // The cast finds the amax on its way; an amax that leaves Inf out, or that the scale was not made
  // from, needs a separate pass.
  if (job.amax != nullptr &&
      (job.given_amax != nullptr || amax_of(job.scale) == AmaxOf::only_finite)) {
    plan.amax_out = nullptr;
    amax_matrix(exec, job.source, amax_of(job.scale), job.amax);
  }
  const bool is_e5m2 = fast_element(codes.format) == FastElement::e5m2;
  switch (values.dtype) {
    case DType::f32:
      is_e5m2 ? launch_tensor<DType::f32, true>(exec, plan)
              : launch_tensor<DType::f32, false>(exec, plan);
      break;
    case DType::f16:
      is_e5m2 ? launch_tensor<DType::f16, true>(exec, plan)
              : launch_tensor<DType::f16, false>(exec, plan);
      break;
    default:
      is_e5m2 ? launch_tensor<DType::bf16, true>(exec, plan)
              : launch_tensor<DType::bf16, false>(exec, plan);
  }
  return true;
}

}  // namespace octavo::cuda
