// check() and fail(), which throw octavo::Error, and the text of messages. A message reads
//   [op] got X; expected Y; fix
// Only code above the kernel interface (kernels.h) throws; kernels throw nothing.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "octavo/base/exception.h"

namespace octavo {

// One piece of a message: a string, a character or a number, held as it is until the message is
// needed. Numbers print as a stream prints them by default.
class TextPart {
 public:
  TextPart(std::string_view text) : kind_(Kind::text), text_(text) {}          // NOLINT
  TextPart(const char* text) : TextPart(std::string_view(text)) {}             // NOLINT
  TextPart(const std::string& text) : TextPart(std::string_view(text)) {}      // NOLINT
  TextPart(char character) : kind_(Kind::character), character_(character) {}  // NOLINT
  TextPart(std::floating_point auto number)                                    // NOLINT
      : kind_(Kind::real), real_(static_cast<double>(number)) {}
  TextPart(std::signed_integral auto number)  // NOLINT
      : kind_(Kind::integer), integer_(number) {}
  TextPart(std::unsigned_integral auto number)  // NOLINT
      : kind_(Kind::natural), natural_(number) {}
  TextPart(const void* address) : kind_(Kind::address), address_(address) {}  // NOLINT
  void append_to(std::string& out) const;

 private:
  enum class Kind : std::uint8_t { text, character, integer, natural, real, address };
  Kind kind_;
  union {
    std::string_view text_;
    char character_;
    std::int64_t integer_;
    std::uint64_t natural_;
    double real_;
    const void* address_;
  };
};

[[nodiscard]] std::string join_parts(std::initializer_list<TextPart> parts);
[[noreturn]] void fail_with(ErrorCode code, std::string_view op,
                            std::initializer_list<TextPart> parts);

// Concatenates strings and numbers. Always inlined, as are fail and check: an instance for each
// combination of literals would be compiled, and kept, for every message of the library.
template <typename... Parts>
[[nodiscard, gnu::always_inline]] inline std::string text(const Parts&... parts) {
  return join_parts({TextPart(parts)...});
}

// Untrusted text for a message: bounded in length, control characters replaced.
[[nodiscard]] inline std::string shown(std::string_view text_of_others, std::size_t most = 40) {
  std::string out;
  for (const char c : text_of_others.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '?';
  return text_of_others.size() > most ? out + "..." : out;
}

// A message without its "[op] " prefix, for embedding in another message.
[[nodiscard]] inline std::string reason_of(const Error& error) {
  const std::string_view message = error.what();
  const std::size_t end = message.starts_with('[') ? message.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? message : message.substr(end + 2));
}

template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail(ErrorCode code, std::string_view op,
                                                  const Parts&... parts) {
  fail_with(code, op, {TextPart(parts)...});
}

// For errors of the caller; bugs of the library are assert(). The parts are evaluated even when the
// condition holds: an expensive message belongs behind `if (...) fail(...)`.
template <typename... Parts>
[[gnu::always_inline]] inline void check(bool holds, ErrorCode code, std::string_view op,
                                         const Parts&... parts) {
  if (!holds) [[unlikely]] {
    fail_with(code, op, {TextPart(parts)...});
  }
}

}  // namespace octavo
