// Statistics of finished layers as files in the folder of a walk's state, so that a later process
// need not see those layers again.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "octavo/model/statistics/statistics_file.h"

namespace octavo::eval {

// A file for each layer, written before the state says that the layer is done.
class CalibrationFiles {
 public:
  // `folder` empty: there is no state, and members do nothing.
  explicit CalibrationFiles(std::string folder) : folder_(std::move(folder)) {}

  void store(std::int64_t layer, const ModelStatistics& statistics) const;
  // Throws Error(invalid_argument) where the file is missing, damaged or of another model.
  [[nodiscard]] ModelStatistics load(std::int64_t layer, const StatisticsOrigin& origin) const;
  void remove() const;  // those of all layers; other files of the folder are not ours

 private:
  [[nodiscard]] std::string path_of(std::int64_t layer) const;

  std::string folder_;
};

}  // namespace octavo::eval
