// Fuzz target of parse_format, which takes untrusted text from command lines, configuration files
// and checkpoints: it gives a valid format or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/encode.h"

namespace {

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what, std::string_view name) {
  if (holds) return;
  std::fprintf(stderr, "%s: '%.*s'\n", what, static_cast<int>(name.size()), name.data());
  std::abort();
}

void check_format(const octavo::Format& format, std::string_view name) {
  require(!octavo::format_problem(format), "a parsed format is not valid", name);
  const std::string canonical = octavo::format_name(format);
  require(octavo::parse_format(canonical) == format, "the canonical name means another format",
          name);
  require(canonical.size() <= 64, "the canonical name is too long to parse", name);

  // Codes decode, and numbers encode to a code of the same value: all of them in small formats, and
  // in larger ones as many as a fuzzer can afford, with a step that meets every exponent and low
  // bit.
  const std::uint32_t step = format.bits() <= 10 ? 1 : 37;
  for (std::uint32_t code = 0; code <= format.code_mask(); code += step) {
    const double value = octavo::decode(format, code);
    if (octavo::is_nan(format, code)) {
      require(value != value, "a NaN code has a value", name);
      continue;
    }
    const octavo::Encoded back =
        octavo::encode_value(format, value, {.overflow = octavo::Overflow::propagate});
    require(octavo::decode(format, back.code) == value, "a value does not come back", name);
    require(back.saturated == octavo::is_inf(format, code),
            "a finite value counts as beyond the range", name);
  }
  require(octavo::max_value(format) > 0 && octavo::min_positive(format) > 0,
          "limits are not positive", name);
  require(octavo::min_positive(format) <= octavo::max_value(format), "limits are not in order",
          name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view name(reinterpret_cast<const char*>(data), size);
  try {
    check_format(octavo::parse_format(name), name);
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument, "the error has another code",
            name);
    require(message.substr(0, 9) == "[format] ", "the message does not name the operation", name);
    require(message.size() < 300, "the message grows with the input", name);
    for (const char c : message)
      require(c >= ' ' && c <= '~', "the message is not printable", name);
  }
  return 0;
}
