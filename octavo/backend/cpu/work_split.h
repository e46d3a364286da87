// The work split of the CPU drivers: how many threads, and which units each of them takes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "octavo/backend/kernels.h"
#include "octavo/base/fp_env.h"
#include "octavo/base/thread_pool.h"

namespace octavo::cpu {

// At least one; a thread is used only if it gets enough elements.
inline int useful_threads(const Exec& exec, std::int64_t elements) {
  constexpr std::int64_t kPerThread = 64 * 1024;
  return static_cast<int>(
      std::max<std::int64_t>(1, std::min<std::int64_t>(exec.threads, elements / kPerThread)));
}

// Several parts per thread, to balance cores that are busy with other work.
inline int parts_for(std::int64_t units, int threads) {
  return static_cast<int>(std::min<std::int64_t>(units, threads > 1 ? threads * 4 : 1));
}

// Calls work(part, first, last) for every part of the units, in a known floating-point environment.
template <typename Work>
void parallel_parts(std::int64_t units, int parts, int threads, Work&& work) {
  parallel_for(parts, threads, [&](int part) {
    const FpEnvGuard guard;
    work(part, units * part / parts, units * (part + 1) / parts);
  });
}

// Calls work(unit) for every unit.
template <typename Work>
void parallel_units(std::int64_t units, int threads, Work&& work) {
  parallel_parts(units, parts_for(units, threads), threads,
                 [&](int, std::int64_t first, std::int64_t last) {
                   for (std::int64_t unit = first; unit < last; ++unit) work(unit);
                 });
}

}  // namespace octavo::cpu
