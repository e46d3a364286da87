// How long calls are behind the door: for measuring what everything in front of it costs.
//   const KernelClock clock;   layer.forward(x);   clock.seconds();
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

// While one is there, the backend that the registry chooses for the CPU times its calls, on every
// thread. A call that is asked how much memory it wants, or whether it is offered, is not one.
// One at a time: a second one throws Error(unsupported).
class OCTAVO_API KernelClock {
 public:
  KernelClock();
  ~KernelClock();
  KernelClock(const KernelClock&) = delete;
  KernelClock& operator=(const KernelClock&) = delete;

  // Of the calls that have ended since it was made.
  [[nodiscard]] double seconds() const;
  [[nodiscard]] std::int64_t calls() const;
};

}  // namespace octavo
