// HessianSum: E[x x^T] of all channels that enter a product, for GPTQ. calibrate() sums the same in
// f64, token after token (input_sums_internal.h); here runs of kRun tokens are products in f32,
// which are added in f64: many times faster. With u = 2^-24 an element of a run is off by at most
// (kRun + 2) u times the sum of |x_i x_j|, 6.1e-5 of it, typically a fiftieth of that: small beside
// damping, which adds a hundredth or more of the mean diagonal to each element there.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/tensor/view.h"

namespace octavo::gptq_detail {

class HessianSum {
 public:
  // Tokens that are one product, and channels whose sums are.
  static constexpr std::int64_t kRun = 1024, kPanel = 256;

  explicit HessianSum(std::int64_t width);

  // [rows, width] of f32, dense.
  void add(const View& input, int threads);
  // The mean: its lower triangle, [width, width]. Nothing is left here.
  [[nodiscard]] std::vector<double> take();
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t width() const { return width_; }

 private:
  std::int64_t width_, rows_ = 0;
  std::vector<double> sums_;
};

}  // namespace octavo::gptq_detail
