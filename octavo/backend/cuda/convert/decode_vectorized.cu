// Decodes codes of any format that f32 holds to f32, bf16 and f16, eight per thread.
#include "octavo/backend/cuda/convert/decode_element.cuh"
#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

template <DType kTarget, DecodeKind kKind, bool kExact, int kBits>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan, int bits,
                  const __grid_constant__ DecodePlan lane) {
  const std::int64_t row = blockIdx.y;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.vectors) return;
  std::uint32_t codes[kVector], values[kVector];
  const unsigned char* const from_row = from + row * plan.from_pitch;
  kBits == 0 && bits == 7 ? load_sevens(from_row, at, plan.vectors, codes)
                          : load_codes(from_row, at, kBits != 0 ? kBits : bits, codes);
#pragma unroll
  for (int i = 0; i < kVector; ++i) values[i] = decode_element<kKind>(lane, codes[i]);
  store_values<kTarget, kExact>(to + row * plan.to_pitch, at, values);
}

struct Call {
  const Exec& exec;
  const Matrix &codes, &values;
  VectorPlan plan{};
  DecodePlan lane{};
};

template <DType kTarget, DecodeKind kKind, bool kExact>
bool launch(const Call& call) {
  const dim3 grid(blocks_for(call.plan.vectors, kThreads), static_cast<unsigned>(call.plan.rows));
  const int bits = stored_bits_of(call.codes);
  const auto kernel = bits == 8 ? decode_kernel<kTarget, kKind, kExact, 8>
                                : decode_kernel<kTarget, kKind, kExact, 0>;
  kernel<<<grid, kThreads, 0, stream_of(call.exec)>>>(
      static_cast<const unsigned char*>(call.codes.data),
      static_cast<unsigned char*>(call.values.data), call.plan, bits, call.lane);
  OCTAVO_CUDA_LAUNCHED("decode_kernel");
  return true;
}

template <DType kTarget, bool kExact>
bool launch_kind(const Call& call) {
  switch (call.lane.kind) {
    case DecodeKind::plain:
      // To f32 the kernel is memory-bound, so one kernel serves all kinds.
      if (kTarget != DType::f32) return launch<kTarget, DecodeKind::plain, kExact>(call);
      return launch<kTarget, DecodeKind::specials, kExact>(call);
    case DecodeKind::ieee:
      if (kTarget != DType::f32) return launch<kTarget, DecodeKind::ieee, kExact>(call);
      return launch<kTarget, DecodeKind::specials, kExact>(call);
    case DecodeKind::fnuz:
      if (kTarget != DType::f32) return launch<kTarget, DecodeKind::fnuz, kExact>(call);
      return launch<kTarget, DecodeKind::specials, kExact>(call);
    case DecodeKind::specials:
      return launch<kTarget, DecodeKind::specials, kExact>(call);
    case DecodeKind::integers:
      return launch<kTarget, DecodeKind::integers, kExact>(call);
    case DecodeKind::powers:
      return launch<kTarget, DecodeKind::powers, kExact>(call);
  }
  return false;
}

}  // namespace

bool decode_vectorized(const Exec& exec, const Matrix& codes, const Matrix& values) {
  Call call{.exec = exec, .codes = codes, .values = values};
  if (!vector_plan(codes, values, &call.plan) || call.plan.rows > 65535 ||
      !decode_plan(codes.format, &call.lane))
    return false;
  switch (values.dtype) {
    case DType::f32:
      return launch_kind<DType::f32, true>(call);
    case DType::bf16:
      return call.lane.exact16 ? launch_kind<DType::bf16, true>(call)
                               : launch_kind<DType::bf16, false>(call);
    case DType::f16:
      return launch_kind<DType::f16, false>(call);
    default:
      return false;
  }
}

}  // namespace octavo::cuda
