// Fuzz target of parse_shard_index. The index is untrusted: for any input it gives plain file names
// and an index that round-trips, or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/checkpoint/shard_index.h"

namespace {

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    octavo::ShardIndex index = octavo::parse_shard_index(text, "index");
    for (const std::string& file : index.files) {
      require(file.find('/') == std::string::npos, "a file has a folder");
      require(file.find('\0') == std::string::npos, "a file has a NUL");
      require(file != "..", "a file is a folder");
    }
    for (const auto& [tensor, file] : index.tensors)
      require(file < index.files.size(), "a tensor is in no file");
    index.total_size = index.total_size < 0 ? 0 : index.total_size;
    require(octavo::parse_shard_index(octavo::write_shard_index(index), "index") == index,
            "does not read back");
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument, "the error has another code");
    require(message.size() < 500, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
