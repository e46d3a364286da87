// Error between two arrays of plain values: a row block for TensorError, like measure_row_block for
// codes. Nothing saturates here; a value that became zero counts as flushed.
#pragma once

#include <span>

#include "octavo/report/row_block_error.h"

namespace octavo {

// Sums in double, element by element. Both must be of the same length. `bytes` is what the second
// takes in its file.
[[nodiscard]] RowBlockError measure_values(std::span<const float> before,
                                           std::span<const float> after, std::int64_t bytes);

}  // namespace octavo
