// One scale for several matrices (a tensor whose leading dimensions do not follow each other in
// memory) by a policy that searches: percentile, mse or wmse.
#pragma once

#include <cstdint>
#include <functional>

#include "octavo/backend/kernels.h"
#include "octavo/scale/fit.h"

namespace octavo {

struct TensorSearch {
  Exec exec{};
  // Entries of the kernel table, for this Exec.
  decltype(Kernels::count_magnitudes) count_magnitudes = nullptr;
  decltype(Kernels::add_fit_squares) add_fit_squares = nullptr;
  // Calls visit with the job of each matrix, or of some rows of it, in row-major order.
  using Visit = std::function<void(const QuantizeJob&)>;
  std::function<void(const Visit&)> for_each_job{};

  // The amax to take instead of that of all `count` values, and how to make a scale of it.
  [[nodiscard]] FitAmax find(const QuantizeJob& job, std::int64_t count, float amax) const;

 private:
  [[nodiscard]] float ranked(std::int64_t rank) const;
  [[nodiscard]] FitAmax fitted(AmaxPolicy policy, const ScaleSpec& spec, float amax) const;
};

}  // namespace octavo
