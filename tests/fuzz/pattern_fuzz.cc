// Fuzz target of regular expressions, which come from command lines and from untrusted configs: the
// first line of the input is matched over the second. An expression is matched in time linear in
// both, or refused with one clean message.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/pattern/pattern.h"

namespace {

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view expression = input.substr(0, end);
  const std::string_view text = end < size ? input.substr(end + 1) : std::string_view();
  try {
    const octavo::Pattern pattern(expression);
    require(!pattern.begins(text) || pattern.is_in(text), "it begins what it is not in");
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument, "the error has another code");
    require(message.starts_with("[pattern] '"), "the message does not begin with the expression");
    require(message.size() < 300, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
