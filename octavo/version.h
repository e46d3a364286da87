// The one place that states octavo's version. CMake and the Python package read these three lines
// with a regular expression, so they stay plain decimal literals, one per line.
#pragma once

#include "octavo/base/macros.h"

#define OCTAVO_VERSION_MAJOR 0
#define OCTAVO_VERSION_MINOR 1
#define OCTAVO_VERSION_PATCH 0

#define OCTAVO_DETAIL_STRINGIZE(x) #x
#define OCTAVO_DETAIL_DOTTED(a, b, c) \
  OCTAVO_DETAIL_STRINGIZE(a) "." OCTAVO_DETAIL_STRINGIZE(b) "." OCTAVO_DETAIL_STRINGIZE(c)

// "0.1.0": the version of the headers a program was compiled with.
#define OCTAVO_VERSION_STRING \
  OCTAVO_DETAIL_DOTTED(OCTAVO_VERSION_MAJOR, OCTAVO_VERSION_MINOR, OCTAVO_VERSION_PATCH)

namespace octavo {

// The version of the library a program runs with. Differs from OCTAVO_VERSION_STRING when the
// shared library was replaced after the program was built.
[[nodiscard]] OCTAVO_API const char* version() noexcept;

}  // namespace octavo
