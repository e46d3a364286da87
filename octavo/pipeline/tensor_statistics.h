// Statistics of a checkpoint tensor's values (min, max, mean, standard deviation, NaN, Inf),
// quantized or not, in one pass and bounded memory.
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
  [[nodiscard]] double deviation() const;  // population standard deviation
};

// nullopt for types that are not floating point.
[[nodiscard]] OCTAVO_API std::optional<TensorStatistics> statistics_of(
    const CheckpointReader& checkpoint, const StoredTensor& tensor);
// Of the dequantized values.
[[nodiscard]] OCTAVO_API TensorStatistics statistics_of(const CheckpointReader& checkpoint,
                                                        Dialect dialect, const FoundWeight& found);

}  // namespace octavo
