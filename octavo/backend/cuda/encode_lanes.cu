// Values to codes of any format that f32 lanes can make, in every rounding.
#include "octavo/backend/cuda/device/encode_lane.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/lane_plans.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/backend/cuda/vector_plan.h"
#include "octavo/round/stochastic.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

// The draws of eight elements from an index that is a multiple of eight: they come out of one
// block.
__device__ __forceinline__ void draw_eight(std::uint64_t seed, std::uint64_t index, int bits,
                                           std::uint32_t (&draws)[kVector]) {
  const bool bytes = bits <= 8;
  const PhiloxBlock block = philox4x32(seed, index / (bytes ? 16u : 8u));
  const std::uint32_t mask = (1u << bits) - 1u;
  const bool upper = bytes && index % 16u != 0u;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const std::uint32_t by_byte = (upper ? block[2 + i / 4] : block[i / 4]) >> (i % 4 * 8);
    const std::uint32_t by_half = block[i / 2] >> (i % 2 * 16);
    draws[i] = (bytes ? by_byte : by_half) & mask;
  }
}

template <DType kSource, Rounding kRounding, LaneKind kKind, int kBits>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan, int bits,
                  const __grid_constant__ LaneEncode lane, std::uint64_t seed,
                  std::uint64_t first_index) {
  const std::int64_t row = blockIdx.y;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.vectors) return;
  const Raw<kSource> raw = load_raw<kSource>(from + row * plan.from_pitch, at);
  std::uint32_t codes[kVector], draws[kVector] = {};
  if constexpr (kRounding == Rounding::stochastic)
    draw_eight(seed, first_index + static_cast<std::uint64_t>(row * plan.cols + at * kVector),
               static_cast<int>(lane.stochastic_bits), draws);
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    codes[i] = encode_lane<kRounding, kKind>(lane, f32_bits<kSource>(raw, i), draws[i]);
  store_codes(to + row * plan.to_pitch, at, kBits != 0 ? kBits : bits, codes);
}

struct Call {
  const Exec& exec;
  const Matrix &values, &codes;
  const EncodePolicy& policy;
  VectorPlan plan{};
  LaneEncode lane{};
  LaneKind kind{};
};

template <DType kSource, Rounding kRounding, LaneKind kKind>
void launch(const Call& call) {
  const dim3 grid(blocks_for(call.plan.vectors, kThreads), static_cast<unsigned>(call.plan.rows));
  const int bits = stored_bits_of(call.codes);
  const auto kernel = bits == 8 ? encode_kernel<kSource, kRounding, kKind, 8>
                                : encode_kernel<kSource, kRounding, kKind, 0>;
  kernel<<<grid, kThreads, 0, stream_of(call.exec)>>>(
      static_cast<const unsigned char*>(call.values.data),
      static_cast<unsigned char*>(call.codes.data), call.plan, bits, call.lane, call.policy.seed,
      call.policy.first_index);
  OCTAVO_CUDA_LAUNCHED("encode_kernel");
}

template <DType kSource, Rounding kRounding>
bool launch_kind(const Call& call) {
  switch (call.kind) {
    case LaneKind::quick:
      launch<kSource, kRounding, LaneKind::quick>(call);
      return true;
    case LaneKind::integers:
      launch<kSource, kRounding, LaneKind::integers>(call);
      return true;
    case LaneKind::shifts:
      launch<kSource, kRounding, LaneKind::shifts>(call);
      return true;
    case LaneKind::e8m0:
      launch<kSource, kRounding, LaneKind::e8m0>(call);
      return true;
  }
  return false;
}

template <DType kSource>
bool launch_rounding(const Call& call) {
  switch (call.policy.rounding) {
    case Rounding::nearest_even:
      return launch_kind<kSource, Rounding::nearest_even>(call);
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case Rounding::nearest_away:
      return launch_kind<kSource, Rounding::nearest_away>(call);
    case Rounding::toward_zero:
      return launch_kind<kSource, Rounding::toward_zero>(call);
    case Rounding::up:
      return launch_kind<kSource, Rounding::up>(call);
    case Rounding::down:
      return launch_kind<kSource, Rounding::down>(call);
    case Rounding::to_odd:
      return launch_kind<kSource, Rounding::to_odd>(call);
    case Rounding::stochastic:
      return launch_kind<kSource, Rounding::stochastic>(call);
#else
    default:
      return false;
#endif
  }
  return false;
}

}  // namespace

bool encode_lanes(const Exec& exec, const Matrix& values, const Matrix& codes,
                  const EncodePolicy& policy) {
  Call call{.exec = exec, .values = values, .codes = codes, .policy = policy};
  if (!vector_plan(values, codes, &call.plan) || call.plan.rows > 65535 ||
      !lane_encode(codes.format, policy, &call.lane, &call.kind))
    return false;
  if (policy.rounding == Rounding::stochastic &&
      (policy.first_index % kVector != 0 || values.cols % kVector != 0))
    return false;
  switch (values.dtype) {
    case DType::f32:
      return launch_rounding<DType::f32>(call);
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::bf16:
      return launch_rounding<DType::bf16>(call);
    case DType::f16:
      return launch_rounding<DType::f16>(call);
#endif
    default:
      return false;
  }
}

}  // namespace octavo::cuda
