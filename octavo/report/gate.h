// Quality gates: user limits on metrics, such as 'cosine<0.999', and the tensors that miss them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/report/checkpoint_report.h"
#include "octavo/report/metrics.h"

namespace octavo {

struct OCTAVO_API Gate {
  std::string typed;
  double ErrorMetrics::*metric = nullptr;
  std::string metric_name, comparison;
  double limit = 0;

  [[nodiscard]] double value(const ErrorMetrics& metrics) const { return metrics.*metric; }
  // Is the forbidden condition true, of the value with six digits?
  [[nodiscard]] bool is_violated_by(const ErrorMetrics& metrics) const;
  [[nodiscard]] bool is_violated_by(double value) const;
};

// Throws Error(invalid_argument).
[[nodiscard]] OCTAVO_API Gate parse_gate(const std::string& typed);
[[nodiscard]] OCTAVO_API std::vector<std::string> gate_metric_names();
// The metric's name in what was typed, whether there is such a metric or not.
[[nodiscard]] OCTAVO_API std::string gate_metric_typed(std::string_view typed);

// A limit that a report misses.
struct MissedGate {
  std::string typed;
  std::string what;         // "cosine of 'a.weight' is 0.99, and of 3 others"
  std::string tensor;       // the worst that misses it: untrusted
  std::size_t tensors = 0;  // how many do
};
// By the tensors of a report, or where it is of a folder that was complete by the ranges that the
// folder keeps: Error(invalid_argument) where it keeps none. What is not finite is in no metric,
// and what only one side has was not compared: both miss every limit, and the second is told apart.
[[nodiscard]] OCTAVO_API std::vector<MissedGate> missed_gates(const CheckpointReport& report,
                                                              const std::vector<Gate>& gates);

}  // namespace octavo
