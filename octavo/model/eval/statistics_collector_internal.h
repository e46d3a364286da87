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
#include "octavo/model/eval/eval_model_internal.h"
#include "octavo/model/eval/input_sums_internal.h"

namespace octavo::eval {

class StatisticsCollector {
 public:
  // Throws Error(invalid_argument) where the expression for full Hessians is none.
  explicit StatisticsCollector(const CalibrateOptions& options);

  // What all statistics of this model take at most, before any is taken. Throws
  // Error(invalid_argument) where the expression for full Hessians finds no module.
  struct Needs {
    std::uint64_t bytes = 0;
    std::size_t modules = 0, full = 0;  // `full`: with the Hessian of all channels
  };
  [[nodiscard]] Needs needs(const EvalModel& model) const;

  [[nodiscard]] LayerObserver observer();
  // Closes the sums of a layer: its statistics.
  [[nodiscard]] ModelStatistics finish_layer();
  void add(ModelStatistics layer);  // of a finished one, layers in order
  [[nodiscard]] ModelStatistics take();

 private:
  void add_input(std::string_view module, const View& input);
  void add_cache(std::string_view module, const View& k, const View& v);
  void add_routing(std::string_view module, std::span<const std::int64_t> tokens);
  [[nodiscard]] InputSumsOptions options_of(std::string_view module) const;

  const CalibrateOptions& options_;
  std::optional<Pattern> full_;
  std::map<std::string, InputSums, std::less<>> open_;
  std::map<std::string, CacheStatistics, std::less<>> caches_;
  std::map<std::string, RoutingStatistics, std::less<>> routings_;
  ModelStatistics out_;
};

// calibrate() on a model that is open already.
[[nodiscard]] ModelStatistics calibrate_model(const EvalModel& model,
                                              const CalibrateOptions& options);

}  // namespace octavo::eval
