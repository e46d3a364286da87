// Codes of any format that f32 holds to f32, bf16 and f16.
#include "octavo/backend/cuda/device/decode_lane.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/lane_plans.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/backend/cuda/vector_plan.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

template <DType kTarget, int kBits>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan, int bits,
                  const __grid_constant__ LaneDecode lane) {
  const std::int64_t row = blockIdx.y;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.vectors) return;
  std::uint32_t codes[kVector], values[kVector];
  load_codes(from + row * plan.from_pitch, at, kBits != 0 ? kBits : bits, codes);
#pragma unroll
  for (int i = 0; i < kVector; ++i) values[i] = decode_lane(lane, codes[i]);
  store_values<kTarget>(to + row * plan.to_pitch, at, values);
}

template <DType kTarget>
bool launch(const Exec& exec, const Matrix& codes, const Matrix& values, const VectorPlan& plan,
            const LaneDecode& lane) {
  const dim3 grid(blocks_for(plan.vectors, kThreads), static_cast<unsigned>(plan.rows));
  const int bits = stored_bits_of(codes);
  const auto* from = static_cast<const unsigned char*>(codes.data);
  auto* to = static_cast<unsigned char*>(values.data);
  if (bits == 8) {
    decode_kernel<kTarget, 8><<<grid, kThreads, 0, stream_of(exec)>>>(from, to, plan, bits, lane);
  } else {
    decode_kernel<kTarget, 0><<<grid, kThreads, 0, stream_of(exec)>>>(from, to, plan, bits, lane);
  }
  OCTAVO_CUDA_LAUNCHED("decode_kernel");
  return true;
}

}  // namespace

bool decode_lanes(const Exec& exec, const Matrix& codes, const Matrix& values) {
  VectorPlan plan;
  LaneDecode lane;
  if (!vector_plan(codes, values, &plan) || plan.rows > 65535 || !lane_decode(codes.format, &lane))
    return false;
  switch (values.dtype) {
    case DType::f32:
      return launch<DType::f32>(exec, codes, values, plan, lane);
    case DType::bf16:
      return launch<DType::bf16>(exec, codes, values, plan, lane);
    case DType::f16:
      return launch<DType::f16>(exec, codes, values, plan, lane);
    default:
      return false;
  }
}

}  // namespace octavo::cuda
