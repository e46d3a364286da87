// Error between two arrays of plain values: a row block for TensorError, like measure_row_block for
// codes. Nothing saturates here; a value that became zero counts as flushed.
#pragma once

#include <span>
#include <vector>

#include "octavo/report/row_block_error.h"

namespace octavo {

// Sums in double, element by element. Both must be of the same length. `bytes` is what the second
// takes in its file.
[[nodiscard]] RowBlockError measure_values(std::span<const float> before,
                                           std::span<const float> after, std::int64_t bytes);

// Numbers that a float or a double cannot hold, such as 64-bit integers: each is value + rest,
// exactly. Where one side of a comparison is integers, the other side is as well, with rest 0.
struct WideValues {
  std::vector<double> value, rest;

  void add(double whole) { add(whole, 0); }
  void add(double nearest, double remainder) {
    value.push_back(nearest);
    rest.push_back(remainder);
  }
};
// The same for those: values that differ have an error, however large they are. Squares are of
// numbers over `unit`, a power of two.
[[nodiscard]] RowBlockError measure_values(const WideValues& before, const WideValues& after,
                                           std::int64_t bytes, double unit = 1);

}  // namespace octavo
