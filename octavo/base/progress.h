// Long work tells how far it is. Called from one thread at a time, a few times a second at most.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace octavo {

struct Progress {
  std::uint64_t bytes_done = 0,
                bytes_total = 0;  // of the source; a first look at an amax counts a quarter
  double seconds = 0;
  std::string_view current;  // the name of a tensor being worked on
};
// Returning false stops the work: what is finished can be resumed, nothing is half-written.
using OnProgress = std::function<bool(const Progress&)>;

}  // namespace octavo
