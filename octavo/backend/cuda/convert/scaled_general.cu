// General scaled conversions: any type, format, strides, packing and policy, and counts, by the
// scalar definitions. One thread per element, or per eight where codes are packed.
#include "octavo/backend/cuda/convert/count.cuh"
#include "octavo/backend/cuda/convert/scaled_element.cuh"
#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/round/product.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

__device__ double factor_of(const Factors& factors, double one, std::int64_t row,
                            std::int64_t col) {
  return factors.each.data != nullptr ? factor_at(factors.each, row, col) : one;
}

template <bool kCounts>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const __grid_constant__ Matrix values, const __grid_constant__ Matrix codes,
                  const __grid_constant__ Factors factors,
                  const __grid_constant__ EncodePolicy policy, Counts* counts) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int width = codes.packed ? kPackedGroup : 1;
  const std::int64_t per_row = (values.cols + width - 1) / width;
  const std::int64_t row = at / per_row, first = at % per_row * width;
  ThreadCounts met;
  if (row < values.rows) {
    const double one = one_factor(factors, max_value(codes.format), at == 0);
    std::uint32_t group[kPackedGroup] = {};
    const int n = static_cast<int>(min(static_cast<std::int64_t>(width), values.cols - first));
    for (int i = 0; i < n; ++i) {
      const std::int64_t col = first + i;
      const double product =
          product_to_odd(load_value(values, row, col), factor_of(factors, one, row, col));
      const Encoded encoded =
          encode_value(codes.format, product, policy, draw_of(policy, row * values.cols + col));
      group[i] = encoded.code;
      if constexpr (kCounts) met.add(encoded);
    }
    codes.packed ? store_packed(codes, row, first, group, n)
                 : store_code(codes, row, first, group[0]);
  }
  if constexpr (kCounts) add_counts(counts, met);
}

__global__ void __launch_bounds__(kThreads)
    decode_kernel(const __grid_constant__ Matrix codes, const __grid_constant__ Matrix values,
                  const __grid_constant__ Factors factors) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = at / codes.cols, col = at % codes.cols;
  if (row >= codes.rows) return;
  double value = decode(codes.format, load_code(codes, row, col));
  const double factor = factor_of(factors, factors.value, row, col);
  if (value == value)
    value = factors.divide               ? __ddiv_rn(value, factor)
            : values.dtype == DType::f64 ? __dmul_rn(value, factor)
                                         : product_to_odd(value, factor);
  store_value(values, row, col, value);
}

}  // namespace

void encode_scaled_general(const Exec& exec, const Matrix& values, const Matrix& codes,
                           const Factors& factors, const EncodePolicy& policy, Counts* counts) {
  const std::int64_t per_row =
      codes.packed ? (values.cols + kPackedGroup - 1) / kPackedGroup : values.cols;
  const unsigned blocks = blocks_for(values.rows * per_row, kThreads);
  const auto kernel = counts != nullptr ? encode_kernel<true> : encode_kernel<false>;
  kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(values, codes, factors, policy, counts);
  OCTAVO_CUDA_LAUNCHED("encode_kernel (scaled, general)");
}

void decode_scaled_general(const Exec& exec, const Matrix& codes, const Matrix& values,
                           const Factors& factors) {
  const unsigned blocks = blocks_for(codes.rows * codes.cols, kThreads);
  decode_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(codes, values, factors);
  OCTAVO_CUDA_LAUNCHED("decode_kernel (scaled, general)");
}

}  // namespace octavo::cuda
