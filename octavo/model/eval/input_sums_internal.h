// Sums over the rows that a Linear gets: amax, E[x^2], and E[x x^T] of neighbouring or of all
// channels. Every sum is taken in f64 in the order of the rows, and threads share channels, never
// a sum: the same bits for any number of threads, and for rows that come in any pieces.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/model/statistics/statistics_file.h"
#include "octavo/tensor/view.h"

namespace octavo::eval {

struct InputSumsOptions {
  bool block_hessians = true, hessian = false;
};

class InputSums {
 public:
  InputSums(std::int64_t width, const InputSumsOptions& options);

  // Memory of these sums, and of what statistics() gives.
  [[nodiscard]] static std::uint64_t nbytes(std::int64_t width, const InputSumsOptions& options);
  [[nodiscard]] static std::uint64_t result_nbytes(std::int64_t width,
                                                   const InputSumsOptions& options);

  // [rows, width] of f32, dense.
  void add(const View& input, int threads);
  // Means, rounded once to f32; zeros where no row came.
  [[nodiscard]] ModuleStatistics statistics() const;

 private:
  // Channels [first, first + kHessianBlock) of rows.
  void add_block(const float* rows, std::int64_t count, std::int64_t first);
  void add_hessian(const float* rows, std::int64_t count, std::int64_t first);

  InputSumsOptions options_;
  std::int64_t width_, rows_ = 0;
  std::vector<float> amax_;
  std::vector<double> squares_, blocks_, hessian_;
};

}  // namespace octavo::eval
