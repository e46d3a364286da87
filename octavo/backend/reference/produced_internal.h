// What a producer makes of a matrix, element by element: computed in f64 and rounded once to f32.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/backend/kernels.h"

namespace octavo::reference {

// The activation of one value.
double activated(ProducerKind kind, double x);

class ProducedValues {
 public:
  // Goes over the rows of x once where the producer is a norm, and stores what is to be known of
  // each.
  ProducedValues(const Matrix& x, const Producer& producer);

  // Row and column of what comes out.
  [[nodiscard]] float at(std::int64_t row, std::int64_t col) const;

 private:
  struct RowStatistics {
    double mean = 0.0;  // of an rms_norm: what is subtracted, nothing
    double inv_std = 1.0;
  };
  [[nodiscard]] RowStatistics statistics_of(std::int64_t row) const;
  [[nodiscard]] double normalized(std::int64_t row, std::int64_t col) const;

  Matrix x_;
  Producer producer_;
  std::vector<RowStatistics> statistics_;  // of each row, where there is a norm
};

}  // namespace octavo::reference
