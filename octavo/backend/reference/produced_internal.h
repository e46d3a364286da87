// The output of a producer (norm, activation), element by element: computed in f64 and rounded once
// to f32.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/backend/kernels.h"

namespace octavo::reference {

// The activation of one value.
double activated(ProducerKind kind, double x);

class ProducedValues {
 public:
  // Reads the rows of x once where the producer is a norm, and stores the statistics of each.
  ProducedValues(const Matrix& x, const Producer& producer);

  // Element (row, col) of the output.
  [[nodiscard]] float at(std::int64_t row, std::int64_t col) const;

 private:
  struct RowStatistics {
    double mean = 0.0;  // 0 for rms_norm, which subtracts nothing
    double inv_std = 1.0;
  };
  [[nodiscard]] RowStatistics statistics_of(std::int64_t row) const;
  [[nodiscard]] double normalized(std::int64_t row, std::int64_t col) const;

  Matrix x_;
  Producer producer_;
  std::vector<RowStatistics> statistics_;  // per row, for norms
};

}  // namespace octavo::reference
