// Values to e4m3fn and e5m2 in the way everybody wants (nearest even, saturating), by the
// hardware's own conversion: bound by memory alone.
#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/backend/cuda/vector_plan.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

template <DType kSource, bool kE5m2, bool kSigns>
__device__ __forceinline__ uint2 eight_codes(const Raw<kSource>& raw) {
  float x[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = __uint_as_float(f32_bits<kSource>(raw, i));
  uint2 codes = {hardware_four<kE5m2>(x[0], x[1], x[2], x[3]),
                 hardware_four<kE5m2>(x[4], x[5], x[6], x[7])};
  if constexpr (kSigns) {  // numbers have theirs already
    codes.x |= sign_bytes(x[0], x[1], x[2], x[3]);
    codes.y |= sign_bytes(x[4], x[5], x[6], x[7]);
  }
  return codes;
}

// One vector a step (f32), or two side by side: then 16 bytes go out at once.
template <DType kSource, bool kE5m2, bool kSigns, int kUnroll>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan) {
  const std::int64_t row = blockIdx.y;
  from += row * plan.from_pitch;
  to += row * plan.to_pitch;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll) +
                             static_cast<std::int64_t>(threadIdx.x);
  constexpr int kSide = kSource == DType::f32 ? 1 : 2;
  Raw<kSource> raw[kUnroll][kSide];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
    for (int v = 0; v < kSide; ++v) {
      const std::int64_t at = (first + u * kThreads) * kSide + v;
      if (at < plan.vectors) raw[u][v] = load_raw<kSource>(from, at);
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t step = first + u * kThreads;
    if (step * kSide >= plan.vectors) break;
    const uint2 codes = eight_codes<kSource, kE5m2, kSigns>(raw[u][0]);
    if constexpr (kSide == 1) {
      store_once(reinterpret_cast<uint2*>(to) + step, codes);
    } else {
      store_pair(to, step, codes, eight_codes<kSource, kE5m2, kSigns>(raw[u][1]), plan.wide,
                 step * 2 + 1 < plan.vectors);
    }
  }
}

template <DType kSource, bool kE5m2, bool kSigns>
void launch(const Exec& exec, const Matrix& values, const Matrix& codes, const VectorPlan& plan) {
  constexpr int kUnroll = 2, kSide = kSource == DType::f32 ? 1 : 2;
  const dim3 grid(blocks_for((plan.vectors + kSide - 1) / kSide, kThreads * kUnroll),
                  static_cast<unsigned>(plan.rows));
  encode_kernel<kSource, kE5m2, kSigns, kUnroll>
      <<<grid, kThreads, 0, stream_of(exec)>>>(static_cast<const unsigned char*>(values.data),
                                               static_cast<unsigned char*>(codes.data), plan);
  OCTAVO_CUDA_LAUNCHED("encode_kernel");
}

template <DType kSource>
void launch_format(const Exec& exec, const Matrix& values, const Matrix& codes,
                   const VectorPlan& plan, bool signs) {
  if (codes.format == e5m2) {
    signs ? launch<kSource, true, true>(exec, values, codes, plan)
          : launch<kSource, true, false>(exec, values, codes, plan);
  } else {
    signs ? launch<kSource, false, true>(exec, values, codes, plan)
          : launch<kSource, false, false>(exec, values, codes, plan);
  }
}

}  // namespace

bool encode_hardware(const Exec& exec, const Matrix& values, const Matrix& codes,
                     const EncodePolicy& policy) {
  VectorPlan plan;
  if ((codes.format != e4m3fn && codes.format != e5m2) ||
      policy.rounding != Rounding::nearest_even || policy.overflow != Overflow::saturate ||
      policy.nan_code == NanCode::signed_quiet || !vector_plan(values, codes, &plan) ||
      plan.rows > 65535)
    return false;
  const bool signs = policy.nan_code == NanCode::signed_ones;
  switch (values.dtype) {
    case DType::f32:
      launch_format<DType::f32>(exec, values, codes, plan, signs);
      return true;
    case DType::bf16:
      launch_format<DType::bf16>(exec, values, codes, plan, signs);
      return true;
    case DType::f16:
      launch_format<DType::f16>(exec, values, codes, plan, signs);
      return true;
    default:
      return false;
  }
}

}  // namespace octavo::cuda
