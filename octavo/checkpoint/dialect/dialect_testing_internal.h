// Shared by the dialect tests: weights with awkward values, written into folders row block by row
// block, as the pipeline does it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/safetensors/file_writer.h"

namespace octavo {

// A temporary folder, removed when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "octavo-checkpoint-XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] std::string path(std::string_view name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }
  void save(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

// Rows whose magnitudes differ, bf16 values, a tile of zeros in the middle.
inline std::vector<float> awkward_values(std::int64_t rows, std::int64_t cols,
                                         std::uint64_t seed = 1) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const auto draw = static_cast<double>(state >> 40) / (1 << 24) - 0.5;
    const auto row = static_cast<std::int64_t>(i) / cols, col = static_cast<std::int64_t>(i) % cols;
    const bool zero = row == rows / 2 && col < 32;
    values[i] = zero ? 0.0F
                     : static_cast<float>(std::nearbyint(draw * 256) / 256 *
                                          std::ldexp(1.0, static_cast<int>(row % 7) - 9));
  }
  return values;
}

// A weight in row blocks, each quantized as the pipeline would: per-tensor data (the amax) is
// given.
struct TestWeight {
  QuantizedWeight weight;
  std::vector<std::int64_t> first_rows;
  std::vector<QuantizedTensor> row_blocks;
};

inline TestWeight make_weight(Dialect dialect, const std::string& name, const Shape& shape,
                              const Scaling& scaling, std::int64_t rows_at_once = 1,
                              std::uint64_t seed = 1) {
  TestWeight out;
  out.weight = {.name = name,
                .module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name,
                .shape = shape,
                .source = DType::bf16,
                .scaling = scaling};
  const std::int64_t cols = shape[shape.rank() - 1];
  const std::int64_t rows = cols == 0 ? shape[0] : element_count(shape) / cols;
  std::vector<float> values = awkward_values(rows, cols, seed);
  const bool one = scaling.tile == Tile{0, 0} || scaling.scale.format == ScaleFormat::e4m3_f32;
  const float all = amax(value_view(values.data(), DType::f32, {rows, cols}));
  const std::int64_t step = row_block_rows(dialect, out.weight);
  const std::int64_t row_block = step * rows_at_once;
  for (std::int64_t first = 0; first < rows; first += row_block) {
    const std::int64_t count = std::min(row_block, rows - first);
    const View view = value_view(values.data() + first * cols, DType::f32, {count, cols});
    out.first_rows.push_back(first);
    out.row_blocks.push_back(quantize(view, scaling, {.given_amax = one ? &all : nullptr}));
  }
  return out;
}

// The file a pipeline would write, with config files beside it.
inline void write_checkpoint(const TemporaryFolder& folder, Dialect dialect,
                             const std::vector<TestWeight>& weights,
                             std::vector<std::string> plain_modules = {"lm_head"}) {
  std::vector<safetensors::TensorPlan> plans;
  std::vector<QuantizedWeight> described;
  for (const TestWeight& one : weights) {
    described.push_back(one.weight);
    for (const DialectTensor& tensor : dialect_tensors(dialect, one.weight))
      plans.push_back(tensor.plan);
  }
  plans.push_back({"model.norm.weight", safetensors::StoredType::bf16, {4}});
  safetensors::FileWriter writer(folder.path("model.safetensors"), plans,
                                 {.metadata = metadata_of(dialect, described)});
  for (const TestWeight& one : weights) {
    const std::vector<DialectTensor> tensors = dialect_tensors(dialect, one.weight);
    for (std::size_t i = 0; i < one.row_blocks.size(); ++i)
      for (const RowBlockBytes& piece :
           pack_row_block(dialect, one.weight, one.first_rows[i], one.row_blocks[i]))
        writer.write(writer.at(tensors[piece.tensor].plan.name), piece.offset, piece.bytes);
  }
  writer.write(writer.at("model.norm.weight"), 0, std::vector<std::byte>(8));
  writer.finish();  // throws where a byte is missing
  Json config = Json::object({{"model_type", "llama"}, {"torch_dtype", "bfloat16"}}), hf_quant;
  configure(dialect, {described, std::move(plain_modules)}, config, hf_quant);
  folder.save("config.json", config.dump());
  if (!hf_quant.is_null()) folder.save("hf_quant_config.json", hf_quant.dump());
}

}  // namespace octavo
