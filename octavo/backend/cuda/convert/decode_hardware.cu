// Decodes e4m3fn and e5m2 to bf16 and f16 by the hardware's conversion (cvt) to pairs of f16, which
// hold every value of both. cvt returns every NaN as 0x7FFF; octavo's NaN is quiet and keeps its
// sign, so halves whose code is NaN are replaced, without a branch.
#include "octavo/backend/cuda/convert/decode_element.cuh"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kE5m2>
__device__ __forceinline__ std::uint32_t f16_pair(std::uint32_t codes) {
  const auto pair = static_cast<std::uint16_t>(codes);
  std::uint32_t halves;
  if constexpr (kE5m2) {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(pair));
  } else {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
  }
  return halves;
}

// Four codes to two words of two halves of the target type; kNan is that type's quiet NaN.
template <bool kE5m2, DType kTarget>
__device__ __forceinline__ uint2 sixteen_bit_four(std::uint32_t codes) {
  constexpr std::uint32_t kNan = kTarget == DType::bf16 ? 0x7FC07FC0u : 0x7E007E00u;
  // The top bit of a byte is set where its code is NaN.
  const std::uint32_t nan = (codes & 0x7F7F7F7Fu) + (kE5m2 ? 0x03030303u : 0x01010101u);
  std::uint32_t words[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const std::uint32_t halves = f16_pair<kE5m2>(k == 0 ? codes : codes >> 16);
    if constexpr (kTarget == DType::bf16) {
      const float2 wide = __half22float2(*reinterpret_cast<const __half2*>(&halves));
      words[k] = __byte_perm(__float_as_uint(wide.x), __float_as_uint(wide.y), 0x7632);
    } else {
      words[k] = halves;
    }
    // Bytes 0 0 1 1 (2 2 3 3) with their sign replicated: a mask of halves.
    std::uint32_t mask;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(mask) : "r"(nan), "r"(k == 0 ? 0x9988 : 0xBBAA));
    const std::uint32_t signs = __byte_perm(codes & 0x80808080u, 0u, k == 0 ? 0x1404 : 0x3424);
    words[k] = (mask & kNan) | (~mask & words[k]) | signs;
  }
  return {words[0], words[1]};
}

template <DType kTarget, bool kE5m2>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const unsigned char* from, unsigned char* to, VectorPlan plan) {
  const std::int64_t row = blockIdx.y;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.vectors) return;
  const uint2 codes = __ldg(reinterpret_cast<const uint2*>(from + row * plan.from_pitch) + at);
  auto* words = reinterpret_cast<uint4*>(to + row * plan.to_pitch);
  const uint2 low = sixteen_bit_four<kE5m2, kTarget>(codes.x),
              high = sixteen_bit_four<kE5m2, kTarget>(codes.y);
  store_once(words + at, uint4{low.x, low.y, high.x, high.y});
}

template <DType kTarget>
bool launch(const Exec& exec, const Matrix& codes, const Matrix& values, const VectorPlan& plan) {
  const dim3 grid(blocks_for(plan.vectors, kThreads), static_cast<unsigned>(plan.rows));
  const auto kernel =
      codes.format == e5m2 ? decode_kernel<kTarget, true> : decode_kernel<kTarget, false>;
  kernel<<<grid, kThreads, 0, stream_of(exec)>>>(static_cast<const unsigned char*>(codes.data),
                                                 static_cast<unsigned char*>(values.data), plan);
  OCTAVO_CUDA_LAUNCHED("decode_kernel");
  return true;
}

}  // namespace

bool decode_hardware(const Exec& exec, const Matrix& codes, const Matrix& values) {
  VectorPlan plan;
  if ((codes.format != e4m3fn && codes.format != e5m2) || !vector_plan(codes, values, &plan) ||
      plan.rows > 65535)
    return false;
  switch (values.dtype) {
    case DType::bf16:
      return launch<DType::bf16>(exec, codes, values, plan);
    case DType::f16:
      return launch<DType::f16>(exec, codes, values, plan);
    default:
      return false;
  }
}

}  // namespace octavo::cuda
