#include "octavo/model/statistics/input_statistics_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/hash/text_hash_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/model/model_fingerprint_internal.h"
#include "octavo/model/statistics/statistics_file.h"

namespace octavo {
namespace {

// NaN, if there is one.
float largest(const std::vector<float>& values) {
  float most = 0.0F;
  for (const float value : values)
    if (!(value <= most) && most == most) most = value;
  return most;
}

// With how many there are: numbers of one vector are not those of the next.
std::uint64_t hash_of(const std::vector<float>& values, std::uint64_t seed) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float));
  return text_hash(bytes, text_hash(text(values.size()), seed));
}

class FileStatistics : public InputStatistics {
 public:
  explicit FileStatistics(StatisticsFile file) : file_(std::move(file)) {}

  [[nodiscard]] const std::string& name() const override { return file_.path(); }
  // The file's account of itself, and all numbers that quantizing may take from it.
  [[nodiscard]] std::string identity() const override {
    const StatisticsOrigin& origin = file_.origin();
    std::uint64_t hash = text_hash(text(origin.model, origin.fingerprint, origin.tokens));
    for (const std::string& name : origin.texts) hash = text_hash(name, hash);
    for (const std::string& module : file_.modules()) {
      hash = text_hash(text(module, " ", file_.rows(module)), hash);
      hash = hash_of(file_.mean_square(module), hash);
      hash = hash_of(file_.amax(module), hash);
    }
    for (const CacheStatistics& one : file_.caches()) {
      hash = text_hash(one.module, hash);
      hash = hash_of(one.v_amax, hash_of(one.k_amax, hash));
    }
    return hex_of(hash);
  }
  [[nodiscard]] std::optional<InputRange> range_of(std::string_view module) const override {
    const std::int64_t width = file_.width(module);
    if (width < 0) return std::nullopt;
    InputRange out{.width = width, .rows = file_.rows(module)};
    const std::vector<float> amax = file_.amax(module);
    if (!amax.empty()) out.amax = largest(amax);
    return out;
  }
  [[nodiscard]] std::vector<float> mean_square(std::string_view module) const override {
    return file_.mean_square(module);
  }
  [[nodiscard]] std::vector<CacheRange> caches() const override {
    std::vector<CacheRange> out;
    for (const CacheStatistics& one : file_.caches())
      out.push_back({one.module, largest(one.k_amax), largest(one.v_amax)});
    return out;
  }
  [[nodiscard]] std::vector<std::string> notes() const override { return file_.notes(); }

 private:
  StatisticsFile file_;
};

// False where shards were deleted after they were quantized: who goes on with such a run has the
// statistics' identity from before, and a run with others is refused.
bool has_all_files(const CheckpointReader& model) {
  std::error_code ignored;
  return std::ranges::all_of(model.files(), [&](const auto& file) {
    return std::filesystem::exists(file.path(), ignored);
  });
}

}  // namespace

std::shared_ptr<const InputStatistics> open_input_statistics(const std::string& path,
                                                             const std::string& model,
                                                             const std::string& deleted_shards) {
  StatisticsFile file(path);
  if (file.origin().fingerprint != 0) {
    const CheckpointReader reader(model, OtherFiles::unused, deleted_shards);
    if (has_all_files(reader)) file.check_model(model, model_fingerprint(reader));
  }
  return std::make_shared<const FileStatistics>(std::move(file));
}

}  // namespace octavo
