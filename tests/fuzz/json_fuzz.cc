// Fuzz target of the JSON parser. config.json and shard indexes are untrusted: for any input the
// parser gives a value that round-trips through writing and reading, or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"

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
  try {
    const octavo::Json value = octavo::parse_json(input, "fuzz");
    for (const int indent : {0, 2}) {
      const std::string written = value.dump(indent);
      require(octavo::parse_json(written, "again") == value, "the written value is another one");
    }
    require(octavo::parse_json(value.dump(), "again").dump() == value.dump(), "digits changed");
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument, "the error has another code");
    require(message.substr(0, 14) == "[json] 'fuzz' ", "the message does not name the file");
    require(message.size() < 300, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
