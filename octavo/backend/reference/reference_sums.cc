// Reference column sums, in the order that kernels.h defines.
#include <algorithm>
#include <utility>
#include <vector>

#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

// Sums runs of kColumnRun rows, then the run sums, until one row is left.
template <typename Real>
Real sum_in_runs(std::vector<Real> numbers) {
  while (numbers.size() != 1) {
    std::vector<Real> sums;
    std::size_t first = 0;
    do {
      const std::size_t end = std::min(numbers.size(), first + std::size_t{kColumnRun});
      Real sum{0};
      for (; first < end; ++first) sum += numbers[first];
      sums.push_back(sum);
    } while (first < numbers.size());
    numbers = std::move(sums);
  }
  return numbers[0];
}

template <typename Real>
void add_columns(const Matrix& values, const Matrix& before, const Matrix& sums) {
  for (std::int64_t col = 0; col < values.cols; ++col) {
    std::vector<Real> numbers;
    for (std::int64_t row = 0; row < values.rows; ++row)
      numbers.push_back(static_cast<Real>(load_value(values, row, col)));
    auto sum = static_cast<double>(sum_in_runs(std::move(numbers)));
    if (before.data != nullptr) sum += load_value(before, 0, col);
    store_value(sums, 0, col, sum);
  }
}

}  // namespace

void column_sums(const Exec&, const Matrix& values, const Matrix& before, const Matrix& sums) {
  const FpEnvGuard guard;
  if (values.dtype == DType::f64 || sums.dtype == DType::f64)
    add_columns<double>(values, before, sums);
  else
    add_columns<float>(values, before, sums);
}

}  // namespace octavo::reference
