// General fallback for norms and activations: any type and strides, in f64 like the reference
// except for the order of sums and the last digits of exp and erfc. One block per row.
#include <algorithm>

#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/produce/producer_math.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

__device__ double norm_weight(const Producer& producer, std::int64_t col) {
  const double weight = load_value(producer.weight, 0, col);
  return producer.zero_centred ? 1.0 + weight : weight;
}

__global__ void __launch_bounds__(kThreads)
    produce_kernel(const __grid_constant__ Matrix x, const __grid_constant__ Producer producer,
                   const __grid_constant__ Matrix out) {
  const std::int64_t cols = out.cols;
  for (std::int64_t row = blockIdx.x; row < out.rows; row += gridDim.x) {
    double mean = 0, inv_std = 1;
    if (producer.is_norm()) {
      const auto n = static_cast<double>(cols);
      if (producer.kind == ProducerKind::layer_norm) {
        double sum = 0;
        for (std::int64_t col = threadIdx.x; col < cols; col += kThreads)
          sum += load_value(x, row, col);
        mean = block_sum(sum) / n;
      }
      double squares = 0;
      for (std::int64_t col = threadIdx.x; col < cols; col += kThreads) {
        const double apart = load_value(x, row, col) - mean;
        squares += apart * apart;
      }
      inv_std = 1.0 / sqrt(block_sum(squares) / n + producer.epsilon);
      if (threadIdx.x == 0) {
        if (producer.mean != nullptr) producer.mean[row] = static_cast<float>(mean);
        if (producer.inv_std != nullptr) producer.inv_std[row] = static_cast<float>(inv_std);
      }
    }
    for (std::int64_t col = threadIdx.x; col < cols; col += kThreads) {
      const double value = load_value(x, row, col);
      double y;
      if (producer.is_norm()) {
        y = (value - mean) * inv_std;
        if (producer.weight.data != nullptr) y *= norm_weight(producer, col);
        if (producer.bias.data != nullptr) y += load_value(producer.bias, 0, col);
      } else {
        y = activated(producer.kind, value);
        if (producer.gated) y *= load_value(x, row, col + cols);
      }
      const bool is_nan = y != y;
      store_value(out, row, col, is_nan ? y : static_cast<double>(static_cast<float>(y)));
    }
  }
}

}  // namespace

void produce_general(const Exec& exec, const Matrix& x, const Producer& producer,
                     const Matrix& out) {
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(out.rows, 1 << 20));
  produce_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(x, producer, out);
  OCTAVO_CUDA_LAUNCHED("produce_kernel (general)");
}

}  // namespace octavo::cuda
