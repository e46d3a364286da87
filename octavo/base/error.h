// One exception type for the whole library. A message reads
//   [op] what was got, what was wanted, how to fix it
// and is thrown only above the kernel door: kernels themselves throw nothing.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "octavo/base/macros.h"

namespace octavo {

enum class ErrorCode {
  invalid_argument,  // a value, shape or size that cannot be right   -> Python ValueError
  wrong_type,        // a dtype or format the operation does not take -> Python TypeError
  io,                // a file could not be read or written           -> Python OSError
  unsupported,       // right in itself, but not available here       -> Python RuntimeError
  internal,          // our own mistake                               -> Python RuntimeError
  device,            // a device, or what drives it, failed           -> Python RuntimeError
};

class OCTAVO_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// Concatenates anything printable; the library does not depend on a formatting library.
template <typename... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

// Somebody else's text for a message: bounded, and nothing that a terminal would act on.
[[nodiscard]] inline std::string shown(std::string_view text_of_others, std::size_t most = 40) {
  std::string out;
  for (const char c : text_of_others.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '?';
  return text_of_others.size() > most ? out + "..." : out;
}

// A message without its "[op] ", for one that begins with more than that.
[[nodiscard]] inline std::string reason_of(const Error& error) {
  const std::string_view message = error.what();
  const std::size_t end = message.starts_with('[') ? message.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? message : message.substr(end + 2));
}

template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, std::string_view op, const Parts&... parts) {
  throw Error(code, text('[', op, "] ", parts...));
}

// For the caller's mistakes; our own are assert(). The parts are evaluated even when the condition
// holds, so a message that takes work to put together belongs behind `if (...) fail(...)`.
template <typename... Parts>
void check(bool holds, ErrorCode code, std::string_view op, const Parts&... parts) {
  if (!holds) [[unlikely]] {
    fail(code, op, parts...);
  }
}

}  // namespace octavo
