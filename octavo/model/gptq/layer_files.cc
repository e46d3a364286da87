#include "octavo/model/gptq/layer_files_internal.h"

#include <filesystem>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/quantized_file.h"
#include "octavo/checkpoint/small_file_internal.h"

namespace octavo::gptq_detail {
namespace {

constexpr const char* kOp = "gptq";
constexpr std::uint64_t kMostErrors = 16U << 20;

}  // namespace

std::string LayerFiles::path_of(std::int64_t layer, const char* ending) const {
  return text(folder_, "/layer-", layer, ending);
}

void LayerFiles::store(std::int64_t layer, const LayerCodes& codes) const {
  QuantizedTensors tensors;
  Json errors = Json::object({});
  for (const auto& [name, made] : codes) {
    tensors.emplace(name, made.codes);
    errors.set(name, Json::array({made.error, made.rounded_error}));
  }
  if (!codes.empty()) save_quantized(path_of(layer, ".safetensors"), tensors);
  write_whole_file(kOp, path_of(layer, ".json"), errors.dump());
}

void LayerFiles::open(std::int64_t count) {
  for (std::int64_t layer = 0; layer < count; ++layer) {
    const std::string path = path_of(layer, ".json");
    const Json errors = parse_json(read_small_file(path, kMostErrors), path);
    if (errors.members().empty()) continue;
    files_.push_back(std::make_unique<const CheckpointReader>(path_of(layer, ".safetensors")));
    for (FoundWeight& weight : recognize(*files_.back()).weights) {
      const std::string name = weight.weight.name;
      found_[name] = {files_.back().get(), std::move(weight)};
    }
    for (const auto& [name, of] : errors.members()) {
      check(found_.contains(name) && of.elements().size() == 2, ErrorCode::invalid_argument, kOp,
            "'", shown(folder_, 400), "' is damaged: there are no codes of '", shown(name, 200),
            "'; remove the folder to begin again");
      errors_[name] = {of.elements()[0].number_or(0.0), of.elements()[1].number_or(0.0)};
    }
  }
}

void LayerFiles::remove(std::int64_t count) const {
  std::error_code ignored;
  for (std::int64_t layer = 0; layer < count; ++layer)
    for (const char* ending : {".safetensors", ".json"})
      std::filesystem::remove(path_of(layer, ending), ignored);
}

QuantizedTensor LayerFiles::rows(const std::string& weight, std::int64_t first,
                                 std::int64_t count) const {
  const Found& found = found_.at(weight);
  return read_row_block(*found.file, Dialect::octavo, found.weight, first, count);
}

}  // namespace octavo::gptq_detail
