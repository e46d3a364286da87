// Text for test messages, through a stream: manipulators such as std::hex work in it.
#pragma once

#include <sstream>
#include <string>

namespace octavo::support {

template <typename... Parts>
[[nodiscard]] std::string printed(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

}  // namespace octavo::support
