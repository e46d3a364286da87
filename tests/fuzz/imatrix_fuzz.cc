// Fuzz target of llama.cpp's binary imatrix files. The file is untrusted: for any input it gives
// statistics whose parts fit together, or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/model/statistics/imatrix_file_internal.h"

namespace {

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  try {
    const octavo::ModelStatistics seen = octavo::eval::parse_imatrix_binary(content, "imatrix");
    for (const octavo::ModuleStatistics& one : seen.modules) {
      require(!one.module.empty(), "a module has no name");
      require(!one.mean_square.empty(), "a module has no values");
      require(one.mean_square.size() * 4 <= size, "more values than the file has");
      require(one.rows > 0, "a module has no rows");
    }
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument, "the error has another code");
    require(message.size() < 500, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
