// StatisticsCollector: a LayerObserver that sums what passes, and closes the sums of a layer when
// the layer is done: of finished ones f32 remains.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/pattern/pattern.h"
#include "octavo/model/decoder_layer.h"
#include "octavo/model/eval/calibrate.h"
#include "octavo/model/eval/input_sums_internal.h"

namespace octavo::eval {

class StatisticsCollector {
 public:
  explicit StatisticsCollector(const CalibrateOptions& options);

  [[nodiscard]] LayerObserver observer();
  void finish_layer();
  // Throws Error(invalid_argument) where the expression for full Hessians found nothing.
  [[nodiscard]] ModelStatistics take();

 private:
  void add_input(std::string_view module, const View& input);
  void add_cache(std::string_view module, const View& k, const View& v);
  void add_routing(std::string_view module, std::span<const std::int64_t> tokens);
  void take_memory(std::string_view module, std::int64_t width, bool full);

  const CalibrateOptions& options_;
  std::optional<Pattern> full_;
  std::uint64_t memory_ = 0;  // that sums and results take, in the end
  bool found_full_ = false;
  std::map<std::string, InputSums, std::less<>> open_;
  std::map<std::string, CacheStatistics, std::less<>> caches_;
  std::map<std::string, RoutingStatistics, std::less<>> routings_;
  ModelStatistics out_;
};

// calibrate() on a model that is open already.
class EvalModel;
[[nodiscard]] ModelStatistics calibrate_model(const EvalModel& model,
                                              const CalibrateOptions& options);

}  // namespace octavo::eval
