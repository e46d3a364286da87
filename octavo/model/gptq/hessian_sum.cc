#include "octavo/model/gptq/hessian_sum_internal.h"

#include <algorithm>

#include "octavo/base/thread_pool.h"
#include "octavo/ops/gemm.h"
#include "octavo/tensor/tensor.h"

namespace octavo::gptq_detail {

HessianSum::HessianSum(std::int64_t width)
    : width_(width), sums_(static_cast<std::size_t>(width * width)) {}

void HessianSum::add(const View& input, int threads) {
  const auto* const rows = static_cast<const float*>(input.data);
  const std::int64_t count = input.shape[0];
  rows_ += count;
  for (std::int64_t first = 0; first < count; first += kRun) {
    const std::int64_t run = std::min(kRun, count - first);
    // Channels as rows: a product is [M, K] x [N, K]^T.
    const Tensor channels = Tensor::values({width_, run}, DType::f32);
    float* const to = channels.span<float>().data();
    const auto panels = static_cast<int>((width_ + kPanel - 1) / kPanel);
    parallel_for(panels, threads, [&](int panel) {
      const std::int64_t end = std::min(width_, (panel + 1) * kPanel);
      for (std::int64_t token = 0; token < run; ++token)
        for (std::int64_t i = panel * kPanel; i < end; ++i)
          to[i * run + token] = rows[(first + token) * width_ + i];
    });
    for (std::int64_t panel = 0; panel < width_; panel += kPanel) {
      const std::int64_t size = std::min(kPanel, width_ - panel), cols = panel + size;
      const Tensor product = gemm(value_view(to + panel * run, DType::f32, {size, run}),
                                  value_view(to, DType::f32, {cols, run}),
                                  {.accumulator = Accumulator::f32, .threads = threads});
      const float* const from = product.span<float>().data();
      parallel_for(static_cast<int>(size), threads, [&](int row) {
        double* const sums = &sums_[static_cast<std::size_t>((panel + row) * width_)];
        for (std::int64_t i = 0; i < cols; ++i)
          sums[i] += static_cast<double>(from[row * cols + i]);
      });
    }
  }
}

std::vector<double> HessianSum::take() {
  const double by = rows_ > 0 ? 1.0 / static_cast<double>(rows_) : 0.0;
  for (double& sum : sums_) sum *= by;
  return std::move(sums_);
}

}  // namespace octavo::gptq_detail
