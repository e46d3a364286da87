// How many threads a product (GEMM) has by default. The threads of one core share its multipliers,
// AMX's tiles among them, and its caches: a second one has nothing to add to a product.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "octavo/base/cpu_topology.h"

namespace octavo {

struct ProductThreads {
  int threads = 1;
  std::string reason;  // for people
};

// One for each core that has an allowed CPU, but no more than the quota has CPUs, rounded up.
[[nodiscard]] ProductThreads choose_product_threads(const CpuTopology& topology,
                                                    std::span<const int> allowed,
                                                    std::optional<double> quota);

// For this process, now: OCTAVO_THREADS, else the choice above. Throws Error where that is no
// number, as available_threads does.
[[nodiscard]] ProductThreads product_threads_with_reason();
[[nodiscard]] int product_threads();

// The quota of this process, read once.
[[nodiscard]] std::optional<double> cpu_quota();

}  // namespace octavo
