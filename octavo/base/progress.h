// Progress callback of long operations. Called from one thread at a time, a few times a second at
// most.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace octavo {

struct Progress {
  std::uint64_t bytes_done = 0,
                bytes_total = 0;  // bytes of the source; the amax pass counts a quarter
  double seconds = 0;
  std::string_view current;  // name of a tensor in progress
};
// Returning false cancels the work: finished files can be resumed, nothing is half-written.
using OnProgress = std::function<bool(const Progress&)>;

}  // namespace octavo
