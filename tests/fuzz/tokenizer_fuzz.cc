// Fuzz target of tokenizers: an input is a tokenizer.json, a NUL, and a text. Any file is refused
// with one clean error or makes a tokenizer, whose ids are its own, for text of any bytes.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/model/tokenizer/tokenizer.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string_view text = end < size ? input.substr(end + 1) : "ab <s> \u00e9 12";
  try {
    const octavo::Tokenizer tokenizer = octavo::Tokenizer::from_json(input.substr(0, end));
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    for (const std::int32_t id : ids) require(id >= 0, "an id is negative");
    const std::vector<std::int32_t> plain = tokenizer.encode(text, false);
    for (const std::int32_t id : plain) {
      require(id < tokenizer.size(), "an id is not below the size");
      require(tokenizer.size() == 0 || tokenizer.token_of(id).data() != nullptr, "no such token");
    }
    const std::string decoded = tokenizer.decode(ids, false);
    (void)tokenizer.encode(decoded);  // which is UTF-8 again
    octavo::Tokenizer::Stream stream(tokenizer);
    for (const std::int32_t id : ids) (void)stream.put(id);
    (void)stream.finish();
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument ||
                error.code() == octavo::ErrorCode::unsupported,
            "the error has another code");
    require(message.size() < 600, "the message grows with the input");
  }
  return 0;
}
