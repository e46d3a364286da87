// General conversion fallback: any type to any format by the scalar definition, with any strides,
// packing and policy, and counts. One thread per element, or per eight where codes are packed.
#include <algorithm>

#include "octavo/backend/cuda/convert/count.cuh"
#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kCounts>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const __grid_constant__ Matrix values, const __grid_constant__ Matrix codes,
                  const __grid_constant__ EncodePolicy policy, Counts* counts) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int width = codes.packed ? kPackedGroup : 1;
  const std::int64_t per_row = (values.cols + width - 1) / width;
  const std::int64_t row = at / per_row, first = at % per_row * width;
  ThreadCounts met;
  if (row < values.rows) {
    std::uint32_t group[kPackedGroup] = {};
    const int n = static_cast<int>(min(static_cast<std::int64_t>(width), values.cols - first));
    for (int i = 0; i < n; ++i) {
      const std::int64_t col = first + i;
      const Encoded encoded = encode_value(codes.format, load_value(values, row, col), policy,
                                           draw_of(policy, row * values.cols + col));
      group[i] = encoded.code;
      if constexpr (kCounts) met.add(encoded);
    }
    codes.packed ? store_packed(codes, row, first, group, n)
                 : store_code(codes, row, first, group[0]);
  }
  if constexpr (kCounts) add_counts(counts, met);
}

__global__ void __launch_bounds__(kThreads)
    decode_kernel(const __grid_constant__ Matrix codes, const __grid_constant__ Matrix values) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = at / codes.cols, col = at % codes.cols;
  if (row < codes.rows)
    store_value(values, row, col, decode(codes.format, load_code(codes, row, col)));
}

__global__ void __launch_bounds__(kThreads)
    count_nan_kernel(const __grid_constant__ Matrix values, std::int64_t* count) {
  unsigned met = 0;
  const std::int64_t n = values.rows * values.cols;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < n;
       at += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const double value = load_value(values, at / values.cols, at % values.cols);
    met += value != value;
  }
  add_number(count, met);
}

}  // namespace

void encode_general(const Exec& exec, const Matrix& values, const Matrix& codes,
                    const EncodePolicy& policy, Counts* counts) {
  const std::int64_t per_row =
      codes.packed ? (values.cols + kPackedGroup - 1) / kPackedGroup : values.cols;
  const unsigned blocks = blocks_for(values.rows * per_row, kThreads);
  if (counts != nullptr) {
    encode_kernel<true><<<blocks, kThreads, 0, stream_of(exec)>>>(values, codes, policy, counts);
  } else {
    encode_kernel<false><<<blocks, kThreads, 0, stream_of(exec)>>>(values, codes, policy, nullptr);
  }
  OCTAVO_CUDA_LAUNCHED("encode_kernel (general)");
}

void decode_general(const Exec& exec, const Matrix& codes, const Matrix& values) {
  const unsigned blocks = blocks_for(codes.rows * codes.cols, kThreads);
  decode_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(codes, values);
  OCTAVO_CUDA_LAUNCHED("decode_kernel (general)");
}

std::int64_t count_nan(const Exec& exec, const Matrix& values) {
  if (values.rows == 0 || values.cols == 0) return 0;
  const Scope scope(exec);
  const Scratch count(exec, sizeof(std::int64_t));
  count.clear();
  const unsigned blocks = static_cast<unsigned>(
      std::min<std::int64_t>(2048, blocks_for(values.rows * values.cols, kThreads)));
  count_nan_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(values, count.as<std::int64_t>());
  OCTAVO_CUDA_LAUNCHED("count_nan_kernel");
  std::int64_t found = 0;
  OCTAVO_CUDA_CHECK(
      cudaMemcpyAsync(&found, count.as<void>(), sizeof(found), cudaMemcpyDefault, stream_of(exec)));
  OCTAVO_CUDA_CHECK(cudaStreamSynchronize(stream_of(exec)));
  return found;
}

}  // namespace octavo::cuda
