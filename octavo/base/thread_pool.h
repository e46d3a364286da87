// Thread pool of the library: parallel_for over detached threads. Not OpenMP: torch bundles an
// OpenMP runtime; two of them in one process oversubscribe the cores, and OpenMP does not survive
// fork.
//
// The pool starts on first use, lives as long as the process, and is rebuilt in a child after fork.
// Calls may come from several threads at once, and from inside a part (then they run in line).
#pragma once

#include <type_traits>

namespace octavo {

// Maximum number of threads that a caller or OCTAVO_THREADS may ask for. It may exceed the number
// of cores (tests of determinism need that).
inline constexpr int kMaxThreads = 1024;

// Default number of threads of a call: OCTAVO_THREADS, else the logical CPUs in the affinity mask
// of the process. Products have another (product_threads.h).
int available_threads();

// Runs body(context, part) for every part in [0, parts), on at most `threads` threads (0: all), the
// calling one among them, and returns when all are done. `body` must not throw.
void parallel_for(int parts, int threads, void (*body)(void* context, int part), void* context);

template <typename Body>
void parallel_for(int parts, int threads, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  parallel_for(
      parts, threads, [](void* context, int part) { (*static_cast<Plain*>(context))(part); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace octavo
