// Limits that a user sets on metrics: --fail-if 'cosine<0.999'.
#pragma once

#include <string>
#include <vector>

#include "octavo/report/metrics.h"

namespace octavo::cli {

struct Gate {
  std::string typed;
  double ErrorMetrics::*metric = nullptr;
  std::string metric_name, comparison;
  double limit = 0;

  [[nodiscard]] double value(const ErrorMetrics& metrics) const { return metrics.*metric; }
  // Is it so, what must not be?
  [[nodiscard]] bool holds(const ErrorMetrics& metrics) const;
};

// Throws UsageError.
Gate parse_gate(const std::string& typed);

std::vector<std::string> gate_metric_names();

}  // namespace octavo::cli
