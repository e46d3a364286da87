// Encodes to e4m3fn and e5m2 with the default policy (nearest even, saturating) by the hardware's
// conversion (cvt): memory-bound.
#include "octavo/backend/cuda/convert/count.cuh"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

template <DType kSource, bool kE5m2, bool kSigns>
__device__ __forceinline__ uint2 eight_codes(const Raw<kSource>& raw) {
  float x[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = __uint_as_float(f32_bits<kSource>(raw, i));
  uint2 codes = hardware_eight<kE5m2>(x);
  if constexpr (kSigns) put_signs(codes, x);
  return codes;
}

// One vector per step (f32), or two side by side: then stores have 16 bytes.
template <DType kSource, bool kE5m2, bool kSigns, bool kCounts, int kUnroll>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan,
                  const __grid_constant__ CountEdges edges, Counts* counts) {
  const std::int64_t row = blockIdx.y;
  from += row * plan.from_pitch;
  to += row * plan.to_pitch;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll) +
                             static_cast<std::int64_t>(threadIdx.x);
  constexpr int kSide = kSource == DType::f32 ? 1 : 2;
  Raw<kSource> raw[kUnroll][kSide];
  if constexpr (kCounts) {  // zeros beyond the end are not counted
#pragma unroll
    for (int i = 0; i < kUnroll * kSide; ++i) raw[i / kSide][i % kSide] = {};
  }
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
  if constexpr (kCounts) {
    ThreadCounts met;
#pragma unroll
    for (int i = 0; i < kUnroll * kSide * kVector; ++i)
      met.count_magnitude(
          edges, f32_bits<kSource>(raw[i / kVector / kSide][i / kVector % kSide], i % kVector));
    met.saturated -= met.nan;
    add_block_counts(counts, met);
  }
}

struct Call {
  const Exec& exec;
  const Matrix &values, &codes;
  bool signs;
  Counts* counts;
  VectorPlan plan{};
  CountEdges edges{};
};

template <DType kSource, bool kE5m2, bool kSigns>
void launch(const Call& call) {
  constexpr int kUnroll = 2, kSide = kSource == DType::f32 ? 1 : 2;
  const dim3 grid(blocks_for((call.plan.vectors + kSide - 1) / kSide, kThreads * kUnroll),
                  static_cast<unsigned>(call.plan.rows));
  const auto kernel = call.counts != nullptr
                          ? encode_kernel<kSource, kE5m2, kSigns, true, kUnroll>
                          : encode_kernel<kSource, kE5m2, kSigns, false, kUnroll>;
  kernel<<<grid, kThreads, 0, stream_of(call.exec)>>>(
      static_cast<const unsigned char*>(call.values.data),
      static_cast<unsigned char*>(call.codes.data), call.plan, call.edges, call.counts);
  OCTAVO_CUDA_LAUNCHED("encode_kernel");
}

template <DType kSource>
void launch_format(const Call& call) {
  if (call.codes.format == e5m2) {
    call.signs ? launch<kSource, true, true>(call) : launch<kSource, true, false>(call);
  } else {
    call.signs ? launch<kSource, false, true>(call) : launch<kSource, false, false>(call);
  }
}

}  // namespace

bool encode_hardware(const Exec& exec, const Matrix& values, const Matrix& codes,
                     const EncodePolicy& policy, Counts* counts) {
  Call call{.exec = exec,
            .values = values,
            .codes = codes,
            .signs = policy.nan_code == NanCode::signed_ones,
            .counts = counts};
  if ((codes.format != e4m3fn && codes.format != e5m2) ||
      policy.rounding != Rounding::nearest_even || policy.overflow != Overflow::saturate ||
      policy.nan_code == NanCode::signed_quiet || !vector_plan(values, codes, &call.plan) ||
      call.plan.rows > 65535)
    return false;
  if (counts != nullptr && !count_edges(codes.format, policy, &call.edges)) return false;
  switch (values.dtype) {
    case DType::f32:
      launch_format<DType::f32>(call);
      return true;
    case DType::bf16:
      launch_format<DType::bf16>(call);
      return true;
    case DType::f16:
      launch_format<DType::f16>(call);
      return true;
    default:
      return false;
  }
}

}  // namespace octavo::cuda
