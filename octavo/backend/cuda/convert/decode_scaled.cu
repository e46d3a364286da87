// Decodes codes times (or divided by) factors to f32, bf16 and f16, eight per thread: exact to f32,
// multiplied or divided in f64, rounded once to the type.
#include <algorithm>

#include "octavo/backend/cuda/convert/decode_element.cuh"
#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/convert/scaled_element.cuh"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

// A quotient by a power of two is the product with its reciprocal, where that is a normal number.
__device__ __forceinline__ bool to_reciprocal(double& factor) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(factor));
  const std::uint64_t exponent = bits >> 52;  // with the sign: a negative factor is not taken
  if ((bits & ((std::uint64_t{1} << 52) - 1)) != 0 || exponent < 1 || exponent > 2045) return false;
  factor = __longlong_as_double(static_cast<long long>((2046 - exponent) << 52));
  return true;
}

template <DType kTarget>
__device__ __forceinline__ void store_scaled(void* to, std::int64_t at,
                                             const std::uint32_t (&bits)[kVector]) {
  if constexpr (kTarget == DType::f32) {
    store_values<DType::f32>(to, at, bits);
  } else {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] =
          __byte_perm(bits[2 * i], bits[2 * i + 1], kTarget == DType::bf16 ? 0x7632 : 0x5410);
    store_once(static_cast<uint4*>(to) + at, uint4{pairs[0], pairs[1], pairs[2], pairs[3]});
  }
}

template <DType kTarget, DecodeKind kKind, bool kColumns>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan, int bits,
                  const __grid_constant__ DecodePlan lane,
                  const __grid_constant__ Factors factors) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.vectors) return;
  for (std::int64_t row = blockIdx.y; row < plan.rows; row += gridDim.y) {
    std::uint32_t codes[kVector], values[kVector];
    load_codes(from + row * plan.from_pitch, at, bits, codes);
    double factor = factors.value;
    if (!kColumns && factors.each.data != nullptr) factor = factor_at(factors.each, row, 0);
    const bool divide = factors.divide && (kColumns || !to_reciprocal(factor));
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if constexpr (kColumns) factor = factor_at(factors.each, row, at * kVector + i);
      values[i] = scaled_value<kTarget>(decode_element<kKind>(lane, codes[i]), factor, divide);
    }
    store_scaled<kTarget>(to + row * plan.to_pitch, at, values);
  }
}

struct Call {
  const Exec& exec;
  const Matrix &codes, &values;
  const Factors& factors;
  VectorPlan plan{};
  DecodePlan lane{};
};

template <DType kTarget, DecodeKind kKind>
bool launch(const Call& call) {
  const bool columns = call.factors.is_array() && call.factors.each.col_stride != 0;
  const dim3 grid(blocks_for(call.plan.vectors, kThreads),
                  static_cast<unsigned>(std::min<std::int64_t>(call.plan.rows, 65535)));
  const auto kernel =
      columns ? decode_kernel<kTarget, kKind, true> : decode_kernel<kTarget, kKind, false>;
  kernel<<<grid, kThreads, 0, stream_of(call.exec)>>>(
      static_cast<const unsigned char*>(call.codes.data),
      static_cast<unsigned char*>(call.values.data), call.plan, stored_bits_of(call.codes),
      call.lane, call.factors);
  OCTAVO_CUDA_LAUNCHED("decode_kernel (scaled)");
  return true;
}

template <DType kTarget>
bool launch_kind(const Call& call) {
  switch (call.lane.kind) {
    case DecodeKind::integers:
      return launch<kTarget, DecodeKind::integers>(call);
    case DecodeKind::powers:
      return launch<kTarget, DecodeKind::powers>(call);
    default:
      return launch<kTarget, DecodeKind::specials>(call);
  }
}

}  // namespace

bool decode_scaled_vectorized(const Exec& exec, const Matrix& codes, const Matrix& values,
                              const Factors& factors) {
  Call call{.exec = exec, .codes = codes, .values = values, .factors = factors};
  if (stored_bits_of(codes) == 7 || !scaled_vector_plan(codes, values, factors, &call.plan) ||
      !decode_plan(codes.format, &call.lane))
    return false;
  switch (values.dtype) {
    case DType::f32:
      return launch_kind<DType::f32>(call);
    case DType::bf16:
      return launch_kind<DType::bf16>(call);
    case DType::f16:
      return launch_kind<DType::f16>(call);
    default:
      return false;
  }
}

}  // namespace octavo::cuda
