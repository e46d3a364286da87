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

// The keys of all rounds of Philox, made on the host: instructions read them for free.
struct DrawKeys {
  std::uint32_t key0[kPhiloxRounds], key1[kPhiloxRounds];
};
DrawKeys draw_keys(std::uint64_t seed) {
  DrawKeys keys;
  for (std::uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys.key0[round] = static_cast<std::uint32_t>(seed) + round * kPhiloxWeyl0;
    keys.key1[round] = static_cast<std::uint32_t>(seed >> 32) + round * kPhiloxWeyl1;
  }
  return keys;
}

// philox4x32 of base/philox.h.
__device__ __forceinline__ uint4 philox_block(const DrawKeys& keys, std::uint64_t counter) {
  uint4 c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0u, 0u};
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(kPhiloxMultiplier0) * c.x;
    const std::uint64_t product1 = static_cast<std::uint64_t>(kPhiloxMultiplier1) * c.z;
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c.y ^ keys.key0[round],
         static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c.w ^ keys.key1[round],
         static_cast<std::uint32_t>(product0)};
  }
  return c;
}

// The draws of eight elements from an index that is a multiple of eight: they come out of one
// block.
__device__ __forceinline__ void draw_eight(const DrawKeys& keys, std::uint64_t index, int bits,
                                           std::uint32_t (&draws)[kVector]) {
  const bool bytes = bits <= 8;
  const uint4 block = philox_block(keys, index >> (bytes ? 4 : 3));
  const std::uint32_t mask = (1u << bits) - 1u;
  if (bytes) {
    const bool upper = index % 16u != 0u;
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      draws[i] = (upper ? word(block, 2 + i / 4) : word(block, i / 4)) >> (i % 4 * 8) & mask;
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) draws[i] = word(block, i / 2) >> (i % 2 * 16) & mask;
  }
}

template <DType kSource, Rounding kRounding, LaneKind kKind, int kBits>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan, int bits,
                  const __grid_constant__ LaneEncode lane, const __grid_constant__ DrawKeys keys,
                  std::uint64_t first_index) {
  const std::int64_t row = blockIdx.y;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.vectors) return;
  const Raw<kSource> raw = load_raw<kSource>(from + row * plan.from_pitch, at);
  std::uint32_t codes[kVector], draws[kVector] = {};
  if constexpr (kRounding == Rounding::stochastic)
    draw_eight(keys, first_index + static_cast<std::uint64_t>(row * plan.cols + at * kVector),
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
      static_cast<unsigned char*>(call.codes.data), call.plan, bits, call.lane,
      draw_keys(call.policy.seed), call.policy.first_index);
  OCTAVO_CUDA_LAUNCHED("encode_kernel");
}

template <DType kSource, Rounding kRounding>
bool launch_kind(const Call& call) {
  switch (call.kind) {
    case LaneKind::simple:
      launch<kSource, kRounding, LaneKind::simple>(call);
      return true;
    case LaneKind::one_nan:
      launch<kSource, kRounding, LaneKind::one_nan>(call);
      return true;
    case LaneKind::one_zero:
      launch<kSource, kRounding, LaneKind::one_zero>(call);
      return true;
    case LaneKind::quick:
      launch<kSource, kRounding, LaneKind::quick>(call);
      return true;
    case LaneKind::simple_integers:
      launch<kSource, kRounding, LaneKind::simple_integers>(call);
      return true;
    case LaneKind::integers:
      launch<kSource, kRounding, LaneKind::integers>(call);
      return true;
    case LaneKind::shifts:
      launch<kSource, kRounding, LaneKind::shifts>(call);
      return true;
    case LaneKind::simple_e8m0:
      launch<kSource, kRounding, LaneKind::simple_e8m0>(call);
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
