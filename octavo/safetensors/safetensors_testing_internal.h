// Shared by the safetensors tests: files made of text, and a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "octavo/base/error.h"

namespace octavo::safetensors {

inline std::string length_text(std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xFF);
  return out;
}

// A whole file: length, header, data.
inline std::string file_text(std::string_view json, std::string_view data = {}) {
  return length_text(json.size()).append(json).append(data);
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The message of the Error that `call` throws, or "" when it throws none.
template <typename Call>
std::string message_of(const Call& call, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string_view(error.what()).substr(0, 14), "[safetensors] ") << error.what();
    return error.what();
  }
  return "";
}

// A test with a folder of its own.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "octavo-safetensors-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder / name; }
  std::string save(const std::string& name, std::string_view content) const {
    std::ofstream(folder / name, std::ios::binary) << content;
    return path(name);
  }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream file(folder / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }

  std::filesystem::path folder;
};

}  // namespace octavo::safetensors
