// Encodes to any format that rounding in f32 can make (encode_element.cuh), in every rounding,
// eight elements per vector.
#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/convert/encode_element.cuh"
#include "octavo/backend/cuda/convert/philox_draws.cuh"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

// Eight codes of EncodeKind::simple, one per byte. The excess of all fields is subtracted four at a
// time, and signs are inserted four at a time.
template <DType kSource, Rounding kRounding>
__device__ __forceinline__ uint2 simple_bytes(const EncodePlan& lane, const DrawKeys& keys,
                                              std::uint64_t index, const Raw<kSource>& raw) {
  std::uint32_t fields[kVector], draws[kVector] = {};
  if constexpr (kRounding == Rounding::stochastic)
    draw_eight<EncodeKind::simple>(keys, index, lane, draws);
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    fields[i] = encode_raw<kRounding>(lane, f32_bits<kSource>(raw, i), draws[i]);
  const uint2 bytes = packed_bytes(fields), signs = sign_bytes_of<kSource>(raw);
  const std::uint32_t too_much = lane.raw_offset * 0x01010101u;
  return {(bytes.x - too_much) | signs.x >> lane.sign_below,
          (bytes.y - too_much) | signs.y >> lane.sign_below};
}

// Vectors per thread: two where their codes can be stored at once and share per-vector work; f32
// loads are slower so.
constexpr int vectors_of(DType source, EncodeKind kind, int bits) {
  return bits == 8 && kind == EncodeKind::simple && source != DType::f32 ? 2 : 1;
}

template <DType kSource, Rounding kRounding, EncodeKind kKind, int kBits>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan, int bits,
                  const __grid_constant__ EncodePlan lane, const __grid_constant__ DrawKeys keys,
                  std::uint64_t first_index) {
  const std::int64_t row = blockIdx.y;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const unsigned char* const from_row = from + row * plan.from_pitch;
  unsigned char* const to_row = to + row * plan.to_pitch;
  const std::uint64_t row_index = first_index + static_cast<std::uint64_t>(row * plan.cols);
  if constexpr (vectors_of(kSource, kKind, kBits) == 2) {
    if (at * 2 >= plan.vectors) return;
    const bool has_second = at * 2 + 1 < plan.vectors;
    const Raw<kSource> first = load_raw<kSource>(from_row, at * 2);
    Raw<kSource> second = {};
    if (has_second) second = load_raw<kSource>(from_row, at * 2 + 1);
    const std::uint64_t index = row_index + static_cast<std::uint64_t>(at * 2 * kVector);
    store_pair(to_row, at, simple_bytes<kSource, kRounding>(lane, keys, index, first),
               simple_bytes<kSource, kRounding>(lane, keys, index + kVector, second), plan.wide,
               has_second);
  } else if constexpr (kBits == 8 && kKind == EncodeKind::simple) {
    if (at >= plan.vectors) return;
    const std::uint64_t index = row_index + static_cast<std::uint64_t>(at * kVector);
    store_once(
        reinterpret_cast<uint2*>(to_row) + at,
        simple_bytes<kSource, kRounding>(lane, keys, index, load_raw<kSource>(from_row, at)));
  } else {
    // Packed codes of seven bits are exchanged between lanes below.
    const bool sevens = kBits == 0 && bits == 7;
    if (at >= plan.vectors && !sevens) return;
    Raw<kSource> raw = {};
    if (!sevens || at < plan.vectors) raw = load_raw<kSource>(from_row, at);
    std::uint32_t codes[kVector], draws[kVector] = {};
    if constexpr (kRounding == Rounding::stochastic)
      draw_eight<kKind>(keys, row_index + static_cast<std::uint64_t>(at * kVector), lane, draws);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      codes[i] = encode_element<kRounding, kKind>(lane, f32_bits<kSource>(raw, i), draws[i]);
    sevens ? store_sevens(to_row, at, plan.vectors, codes)
           : store_codes(to_row, at, kBits != 0 ? kBits : bits, codes);
  }
}

struct Call {
  const Exec& exec;
  const Matrix &values, &codes;
  const EncodePolicy& policy;
  VectorPlan plan{};
  EncodePlan lane{};
  EncodeKind kind{};
};

template <DType kSource, Rounding kRounding, EncodeKind kKind>
void launch(const Call& call) {
  const int bits = stored_bits_of(call.codes);
  const dim3 grid(
      blocks_for(call.plan.vectors, kThreads * (bits == 8 ? vectors_of(kSource, kKind, 8) : 1)),
      static_cast<unsigned>(call.plan.rows));
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
    case EncodeKind::simple:
      launch<kSource, kRounding, EncodeKind::simple>(call);
      return true;
    case EncodeKind::one_nan:
      launch<kSource, kRounding, EncodeKind::one_nan>(call);
      return true;
    case EncodeKind::one_zero:
      launch<kSource, kRounding, EncodeKind::one_zero>(call);
      return true;
    case EncodeKind::quick:
      launch<kSource, kRounding, EncodeKind::quick>(call);
      return true;
    case EncodeKind::simple_integers:
      launch<kSource, kRounding, EncodeKind::simple_integers>(call);
      return true;
    case EncodeKind::integers:
      launch<kSource, kRounding, EncodeKind::integers>(call);
      return true;
    case EncodeKind::shifts:
      launch<kSource, kRounding, EncodeKind::shifts>(call);
      return true;
    case EncodeKind::simple_e8m0:
      launch<kSource, kRounding, EncodeKind::simple_e8m0>(call);
      return true;
    case EncodeKind::e8m0:
      launch<kSource, kRounding, EncodeKind::e8m0>(call);
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

bool encode_vectorized(const Exec& exec, const Matrix& values, const Matrix& codes,
                       const EncodePolicy& policy) {
  Call call{.exec = exec, .values = values, .codes = codes, .policy = policy};
  if (!vector_plan(values, codes, &call.plan) || call.plan.rows > 65535 ||
      !encode_plan(codes.format, policy, &call.lane, &call.kind))
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
