// TensorStatistics of the values of a tensor in a checkpoint, quantized or not, in one pass and
// little memory.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

struct OCTAVO_API TensorStatistics {
  std::int64_t count = 0, nan = 0, inf = 0, zero = 0;
  double least = 0, most = 0;  // of the finite values
  double sum = 0, sum2 = 0;

  void add(double value);
  [[nodiscard]] std::int64_t finite() const { return count - nan - inf; }
  [[nodiscard]] double mean() const;
  [[nodiscard]] double deviation() const;  // standard, of the whole
};

// Nothing for types that are no floating point.
[[nodiscard]] OCTAVO_API std::optional<TensorStatistics> statistics_of(
    const CheckpointReader& checkpoint, const StoredTensor& tensor);
// Of what the codes and scales stand for.
[[nodiscard]] OCTAVO_API TensorStatistics statistics_of(const CheckpointReader& checkpoint,
                                                        Dialect dialect, const FoundWeight& found);

}  // namespace octavo
