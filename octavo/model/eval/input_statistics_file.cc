#include "octavo/model/eval/input_statistics_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/text_hash_internal.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/model/eval/statistics_file.h"
#include "octavo/model/model_fingerprint_internal.h"

namespace octavo {
namespace {

// NaN, if there is one.
float largest(const std::vector<float>& values) {
  float most = 0.0F;
  for (const float value : values)
    if (!(value <= most) && most == most) most = value;
  return most;
}

class FileStatistics : public InputStatistics {
 public:
  explicit FileStatistics(StatisticsFile file) : file_(std::move(file)) {}

  [[nodiscard]] const std::string& name() const override { return file_.path(); }
  // The file's account of itself, and its numbers.
  [[nodiscard]] std::string identity() const override {
    const StatisticsOrigin& origin = file_.origin();
    std::uint64_t hash = text_hash(text(origin.model, origin.fingerprint, origin.tokens));
    for (const std::string& name : origin.texts) hash = text_hash(name, hash);
    for (const std::string& module : file_.modules()) {
      hash = text_hash(module, hash);
      const std::vector<float> squares = file_.mean_square(module);
      hash = text_hash(
          {reinterpret_cast<const char*>(squares.data()), squares.size() * sizeof(float)}, hash);
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

 private:
  StatisticsFile file_;
};

}  // namespace

std::shared_ptr<const InputStatistics> open_input_statistics(const std::string& path,
                                                             const std::string& model) {
  StatisticsFile file(path);
  if (file.origin().fingerprint != 0)
    file.check_model(model, model_fingerprint(CheckpointReader(model)));
  return std::make_shared<const FileStatistics>(std::move(file));
}

}  // namespace octavo
