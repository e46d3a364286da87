// The error that normal weights have in a scaling: what the error of a tensor is held against, so
// that 31.5 dB are good for FP8 and too good to be true for FP4.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "octavo/quant/scaling.h"

namespace octavo {

struct ExpectedError {
  double sqnr = std::numeric_limits<double>::quiet_NaN();    // decibels; NaN: not known
  double cosine = std::numeric_limits<double>::quiet_NaN();  // of the same values
};

// Measured by quantizing normal values with this scaling, in rows as long as the tensor's. A scale
// for a whole tensor is found over a sample of 2^16 values: for floating-point elements, whose
// precision does not depend on the scale, that is as good as all.
[[nodiscard]] ExpectedError expected_error(const Scaling& scaling,
                                           std::span<const std::int64_t> shape);

// The same, once for each scaling and length of a row.
class ExpectedErrors {
 public:
  [[nodiscard]] ExpectedError of(const Scaling& scaling, std::span<const std::int64_t> shape);

 private:
  struct Known {
    Scaling scaling;
    std::int64_t cols = 0;
    ExpectedError error;
  };
  std::vector<Known> known_;
};

}  // namespace octavo
