// Fuzz target of parse_scaling, which takes untrusted text from file metadata: it gives a scaling
// that round-trips and whose sizes can be computed, or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling_text.h"

namespace {

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what, std::string_view line) {
  if (holds) return;
  std::fprintf(stderr, "%s: '%.*s'\n", what, static_cast<int>(line.size()), line.data());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  try {
    const octavo::Scaling scaling = octavo::parse_scaling(line);
    require(octavo::parse_scaling(octavo::to_text(scaling)) == scaling, "does not read back", line);
    require(!octavo::describe(scaling).empty(), "has no description", line);
    if (scaling.axis == -1) (void)octavo::scale_shape(octavo::Shape{1000000, 33}, scaling);
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument, "the error has another code",
            line);
    require(message.size() < 400, "the message grows with the input", line);
    for (const char c : message)
      require(c >= ' ' && c <= '~', "the message is not printable", line);
  }
  return 0;
}
