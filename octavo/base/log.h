// The library prints nothing. What it has to say without being asked (a fallback, a slow path) goes
// to a hook that the caller may set.
#pragma once

#include <functional>
#include <string_view>

#include "octavo/base/macros.h"

namespace octavo {

struct Log {
  std::function<void(std::string_view message)> write;
};

}  // namespace octavo
