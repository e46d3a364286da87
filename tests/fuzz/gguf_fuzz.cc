// Fuzz target of the GGUF parser, and of what is made of its metadata. Files are untrusted: for any
// input there is a header whose tensors lie inside the file, a config and a tokenizer that are
// JSON, or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/block_decode.h"
#include "octavo/checkpoint/gguf/gguf_config.h"
#include "octavo/checkpoint/gguf/gguf_header.h"
#include "octavo/checkpoint/gguf/gguf_names.h"
#include "octavo/checkpoint/gguf/gguf_tokenizer.h"
#include "octavo/checkpoint/gguf/gguf_writer.h"

namespace {

using namespace octavo::gguf;  // NOLINT(google-build-using-namespace)

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void decode(const TensorInfo& tensor, const std::uint8_t* data) {
  if (!tensor.type->is_block() || !tensor.type->decoded || tensor.nbytes == 0) return;
  std::vector<std::byte> blocks(static_cast<std::size_t>(tensor.nbytes));
  std::memcpy(blocks.data(), data, blocks.size());
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  decode_blocks(*tensor.type, blocks, values);
}

void use(const std::uint8_t* data, std::size_t size) {
  const Header header = parse_header(
      [&](std::uint64_t position, std::span<std::byte> into) {
        require(position <= size && into.size() <= size - position, "reads beyond the file");
        std::memcpy(into.data(), data + position, into.size());
      },
      size, "fuzz");
  for (const TensorInfo& tensor : header.tensors) {
    require(header.data_begin + tensor.begin + tensor.nbytes <= size,
            "a tensor is not in the file");
    decode(tensor, data + header.data_begin + tensor.begin);
    const std::string name = model_name(tensor.name);
    require(name.empty() || gguf_name(name) == tensor.name, "a name does not come back");
  }
  const std::string again = metadata_bytes(header.metadata);
  require(again.size() < size, "the metadata have grown");
  if (why_no_tokenizer(header).empty()) {
    (void)octavo::parse_json(tokenizer_json(header), "tokenizer.json");
    (void)octavo::parse_json(tokenizer_config_json(header), "tokenizer_config.json");
  }
  std::vector<std::string> notes;
  (void)octavo::parse_json(make_config(header, {1, 2, 8}, notes).dump(), "config.json");
  const Family family = family_of(header);
  for (const TensorInfo& tensor : header.tensors) (void)family.rope_heads(tensor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(data, size);
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument ||
                error.code() == octavo::ErrorCode::unsupported,
            "the error has another code");
    require(message.starts_with("[gguf] "), "the message does not say where it comes from");
    require(message.size() < 600, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
