// GGUF files for tests, put together byte by byte: not by octavo's own writer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::gguf {

template <typename Number>
std::string le(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}
inline std::string sized(std::string_view text) {
  return le<std::uint64_t>(text.size()).append(text);
}

// A key with its value's type and bytes.
inline std::string key(std::string_view name, std::uint32_t type, std::string_view bytes) {
  return sized(name) + le(type) + std::string(bytes);
}
inline std::string text_key(std::string_view name, std::string_view value) {
  return key(name, 8, sized(value));
}
inline std::string u32_key(std::string_view name, std::uint32_t value) {
  return key(name, 4, le(value));
}
inline std::string strings_key(std::string_view name, const std::vector<std::string>& values) {
  std::string bytes = le<std::uint32_t>(8) + le<std::uint64_t>(values.size());
  for (const std::string& value : values) bytes += sized(value);
  return key(name, 9, bytes);
}

// `sizes` in the file's order, columns first.
inline std::string tensor(std::string_view name, const std::vector<std::uint64_t>& sizes,
                          std::uint32_t type, std::uint64_t offset) {
  std::string out = sized(name) + le(static_cast<std::uint32_t>(sizes.size()));
  for (const std::uint64_t size : sizes) out += le(size);
  return out + le(type) + le(offset);
}

struct TestFile {
  std::vector<std::string> keys{}, tensors{};
  std::string data{};
  std::uint32_t version = 3;

  [[nodiscard]] std::string bytes() const {
    std::string out =
        "GGUF" + le(version) + le<std::uint64_t>(tensors.size()) + le<std::uint64_t>(keys.size());
    for (const std::string& one : keys) out += one;
    for (const std::string& one : tensors) out += one;
    out.resize((out.size() + 31) / 32 * 32, '\0');
    return out + data;
  }
};

// The keys of a Llama of one layer, hidden size 32, two heads of 16.
inline std::vector<std::string> llama_keys() {
  return {text_key("general.architecture", "llama"),
          u32_key("llama.block_count", 1),
          u32_key("llama.context_length", 128),
          u32_key("llama.embedding_length", 32),
          u32_key("llama.feed_forward_length", 64),
          u32_key("llama.attention.head_count", 2),
          u32_key("llama.attention.head_count_kv", 1),
          key("llama.attention.layer_norm_rms_epsilon", 6, le(1e-5F))};
}

}  // namespace octavo::gguf
