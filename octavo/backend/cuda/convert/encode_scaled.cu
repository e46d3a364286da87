// Encodes values times factors, to nearest even, eight elements per vector: a product to odd in f32
// (or, where the factor is no f32, in f64), then the encoders of plain casts. Formats that f32
// holds.
#include <algorithm>

#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/convert/encode_element.cuh"
#include "octavo/backend/cuda/convert/scaled_element.cuh"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode_edges.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

// How products become codes.
enum class Coder { e4m3, e5m2, simple, one_nan, one_zero, quick, shifts, integers };

constexpr EncodeKind kind_of(Coder coder) {
  switch (coder) {
    case Coder::simple:
      return EncodeKind::simple;
    case Coder::one_nan:
      return EncodeKind::one_nan;
    case Coder::one_zero:
      return EncodeKind::one_zero;
    case Coder::shifts:
      return EncodeKind::shifts;
    case Coder::integers:
      return EncodeKind::integers;
    default:
      return EncodeKind::quick;
  }
}

struct Plan {
  VectorPlan vectors;
  EncodePlan lane;
  double largest = 0;     // of the format
  int bits = 8;           // of a code in memory
  bool f32_fits = false;  // products in f32 lose nothing that counts
  bool positive_nan = false;
};

template <Coder kCoder>
__device__ __forceinline__ void store_products(unsigned char* to, std::int64_t at, const Plan& plan,
                                               const std::uint32_t (&products)[kVector]) {
  if constexpr (kCoder == Coder::e4m3 || kCoder == Coder::e5m2) {
    float x[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = __uint_as_float(products[i]);
    uint2 codes = hardware_eight<kCoder == Coder::e5m2>(x);
    if (!plan.positive_nan) put_signs(codes, x);
    store_once(reinterpret_cast<uint2*>(to) + at, codes);
  } else {
    std::uint32_t codes[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      codes[i] =
          encode_element<Rounding::nearest_even, kind_of(kCoder)>(plan.lane, products[i], 0u);
    store_codes(to, at, plan.bits, codes);
  }
}

// kColumns: a factor for each column, else one for a row.
template <DType kSource, Coder kCoder, bool kColumns>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const unsigned char* from, unsigned char* to, const __grid_constant__ Plan plan,
                  const __grid_constant__ Factors factors) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= plan.vectors.vectors) return;
  double factor = 1.0;
  if (factors.each.data == nullptr)
    factor = one_factor(factors, plan.largest, at == 0 && blockIdx.y == 0);
  for (std::int64_t row = blockIdx.y; row < plan.vectors.rows; row += gridDim.y) {
    const Raw<kSource> raw = load_raw<kSource>(from + row * plan.vectors.from_pitch, at);
    if (!kColumns && factors.each.data != nullptr) factor = factor_at(factors.each, row, 0);
    std::uint32_t products[kVector];
    if constexpr (kColumns) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const double own = factor_at(factors.each, row, at * kVector + i);
        products[i] = plan.f32_fits && factors.each.dtype == DType::f32
                          ? product_f32_odd(f32_bits<kSource>(raw, i), static_cast<float>(own))
                          : product_f64_odd(f32_bits<kSource>(raw, i), own);
      }
    } else if (plan.f32_fits && is_f32(factor)) {
      const auto narrow = static_cast<float>(factor);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        products[i] = product_f32_odd(f32_bits<kSource>(raw, i), narrow);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        products[i] = product_f64_odd(f32_bits<kSource>(raw, i), factor);
    }
    store_products<kCoder>(to + row * plan.vectors.to_pitch, at, plan, products);
  }
}

struct Call {
  const Exec& exec;
  const Matrix &values, &codes;
  const Factors& factors;
  Plan plan{};
};

template <DType kSource, Coder kCoder>
bool launch(const Call& call) {
  const bool columns = call.factors.is_array() && call.factors.each.col_stride != 0;
  const dim3 grid(blocks_for(call.plan.vectors.vectors, kThreads),
                  static_cast<unsigned>(std::min<std::int64_t>(call.plan.vectors.rows, 65535)));
  const auto kernel =
      columns ? encode_kernel<kSource, kCoder, true> : encode_kernel<kSource, kCoder, false>;
  kernel<<<grid, kThreads, 0, stream_of(call.exec)>>>(
      static_cast<const unsigned char*>(call.values.data),
      static_cast<unsigned char*>(call.codes.data), call.plan, call.factors);
  OCTAVO_CUDA_LAUNCHED("encode_kernel (scaled)");
  return true;
}

template <DType kSource>
bool launch_coder(const Call& call, Coder coder) {
  switch (coder) {
    case Coder::e4m3:
      return launch<kSource, Coder::e4m3>(call);
    case Coder::e5m2:
      return launch<kSource, Coder::e5m2>(call);
    case Coder::simple:
      return launch<kSource, Coder::simple>(call);
    case Coder::one_nan:
      return launch<kSource, Coder::one_nan>(call);
    case Coder::one_zero:
      return launch<kSource, Coder::one_zero>(call);
    case Coder::shifts:
      return launch<kSource, Coder::shifts>(call);
    case Coder::integers:
      return launch<kSource, Coder::integers>(call);
    case Coder::quick:
      return launch<kSource, Coder::quick>(call);
  }
  return false;
}

Coder coder_of(const Format& format, const EncodePolicy& policy, EncodeKind kind) {
  const bool usual =
      policy.overflow == Overflow::saturate && policy.nan_code != NanCode::signed_quiet;
  if (format == e4m3fn && usual) return Coder::e4m3;
  if (format == e5m2 && usual) return Coder::e5m2;
  switch (kind) {
    case EncodeKind::simple:
      return Coder::simple;
    case EncodeKind::one_nan:
      return Coder::one_nan;
    case EncodeKind::one_zero:
      return Coder::one_zero;
    case EncodeKind::simple_integers:
    case EncodeKind::integers:
      return Coder::integers;
    case EncodeKind::shifts:
      return Coder::shifts;
    default:
      return Coder::quick;
  }
}

}  // namespace

bool encode_scaled_vectorized(const Exec& exec, const Matrix& values, const Matrix& codes,
                              const Factors& factors, const EncodePolicy& policy) {
  Call call{.exec = exec, .values = values, .codes = codes, .factors = factors};
  const Format& format = codes.format;
  EncodeKind kind{};
  const int half_step = format.min_step_exponent() - 1;
  const int top =
      static_cast<int>((format.max_field() + 1) >> format.mantissa_bits) + format.min_exponent();
  if (policy.rounding != Rounding::nearest_even || policy.via_f32 || !fits_f32(format) ||
      half_step <= -126 || top > 127 || stored_bits_of(codes) == 7 ||
      !scaled_vector_plan(values, codes, factors, &call.plan.vectors) ||
      !encode_plan(format, policy, &call.plan.lane, &kind))
    return false;
  call.plan.largest = max_value(format);
  call.plan.bits = stored_bits_of(codes);
  call.plan.f32_fits = half_step >= -100;
  call.plan.positive_nan = policy.nan_code == NanCode::positive_ones;
  const Coder coder = coder_of(format, policy, kind);
  switch (values.dtype) {
    case DType::f32:
      return launch_coder<DType::f32>(call, coder);
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::bf16:
      return launch_coder<DType::bf16>(call, coder);
    case DType::f16:
      return launch_coder<DType::f16>(call, coder);
#endif
    default:
      return false;
  }
}

}  // namespace octavo::cuda
