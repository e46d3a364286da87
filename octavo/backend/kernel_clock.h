// KernelClock measures the time spent inside kernels, so that the overhead of everything above the
// kernel interface can be computed.
//   const KernelClock clock;   layer.forward(x);   clock.seconds();
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

// While a clock exists, the backend that the registry chooses for the CPU times its calls, on every
// thread. Queries of workspace size or of what is offered do not count as calls. One clock at a
// time: a second one throws Error(unsupported).
class OCTAVO_API KernelClock {
 public:
  KernelClock();
  ~KernelClock();
  KernelClock(const KernelClock&) = delete;
  KernelClock& operator=(const KernelClock&) = delete;

  // Of the calls that have ended since construction.
  [[nodiscard]] double seconds() const;
  [[nodiscard]] std::int64_t calls() const;
};

}  // namespace octavo
