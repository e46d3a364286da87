// Shared by the checkpoint tests: a temporary folder, files of tensors, and errors as text.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/safetensors/file_writer.h"

namespace octavo {

inline std::string message_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

inline bool has(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

struct TestTensor {
  safetensors::TensorPlan plan;
  std::vector<std::byte> bytes;
};

// Normally distributed values with a standard deviation of 0.02, like weights.
inline TestTensor random_tensor(const std::string& name, std::vector<std::uint64_t> shape,
                                unsigned seed,
                                safetensors::StoredType type = safetensors::StoredType::bf16) {
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) count *= size;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  TestTensor out{{name, type, std::move(shape)}, {}};
  const bool wide = type == safetensors::StoredType::f32;
  out.bytes.resize(count * (wide ? 4 : 2));
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bits = __builtin_bit_cast(std::uint32_t, normal(random));
    if (wide) {
      std::memcpy(out.bytes.data() + 4 * i, &bits, 4);
    } else {
      const auto half = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(out.bytes.data() + 2 * i, &half, 2);
    }
  }
  return out;
}

inline void write_tensors(const std::string& path, const std::vector<TestTensor>& tensors) {
  std::vector<safetensors::TensorPlan> plans;
  for (const TestTensor& tensor : tensors) plans.push_back(tensor.plan);
  safetensors::FileWriter writer(path, plans, {.metadata = {{"format", "pt"}}});
  for (const TestTensor& tensor : tensors)
    writer.write(writer.at(tensor.plan.name), 0, tensor.bytes);
  writer.finish();
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "octavo-checkpoint-XXXXXX");
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  [[nodiscard]] std::string path(const std::string& name) const { return root / name; }
  std::string save(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name, std::ios::binary) << content;
    return root / name;
  }
  [[nodiscard]] static std::string content_of(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // Name and content of every file in a folder, those of subfolders left out.
  [[nodiscard]] static std::map<std::string, std::string> contents_of(const std::string& folder) {
    std::map<std::string, std::string> out;
    for (const auto& file : std::filesystem::directory_iterator(folder))
      if (!file.is_directory()) out[file.path().filename().string()] = content_of(file.path());
    return out;
  }

  std::filesystem::path root;
};

}  // namespace octavo
