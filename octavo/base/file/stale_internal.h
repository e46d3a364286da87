// ESTALE: what NFS says of a file that another machine has replaced or removed since this one
// looked it up. Looking again finds the new file, or that there is none.
#pragma once

#include <unistd.h>

#include <cerrno>

namespace octavo {

// Is there no such file (any more)?
[[nodiscard]] inline bool is_gone(int error) { return error == ENOENT || error == ESTALE; }

// Calls `attempt` until it has a result, or another error than ESTALE in errno; for at most a
// quarter of a second. What fails is negative.
template <typename Attempt>
auto unless_stale(const Attempt& attempt) {
  constexpr useconds_t kFirst = 1000, kLast = 128'000;
  for (useconds_t wait = kFirst;; wait *= 2) {
    const auto result = attempt();
    if (result >= 0 || errno != ESTALE || wait > kLast) return result;
    usleep(wait);
  }
}

}  // namespace octavo
