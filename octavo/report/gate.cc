#include "octavo/report/gate.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

struct NamedMetric {
  const char* name;
  double ErrorMetrics::*metric;
};
constexpr std::array<NamedMetric, 7> kMetrics{{{"mse", &ErrorMetrics::mse},
                                               {"relative_l2", &ErrorMetrics::relative_l2},
                                               {"sqnr", &ErrorMetrics::sqnr},
                                               {"cosine", &ErrorMetrics::cosine},
                                               {"max_abs", &ErrorMetrics::max_abs},
                                               {"saturated", &ErrorMetrics::saturated_share},
                                               {"flushed", &ErrorMetrics::flushed_share}}};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// A tensor that only one checkpoint has was not compared.
MissedGate missed_by(const Gate& gate, const std::vector<std::string>& not_compared) {
  const std::string& first = not_compared.front();
  const std::size_t more = not_compared.size() - 1;
  std::string what = text("'", shown(first, 120), "' ");
  if (more > 0) what += text("and ", counted(more, "other"), " ");
  what += text(more > 0 ? "were" : "was", " not compared");
  return {gate.typed, std::move(what), first, not_compared.size()};
}

}  // namespace

std::vector<std::string> gate_metric_names() {
  std::vector<std::string> names;
  names.reserve(kMetrics.size());
  for (const NamedMetric& known : kMetrics) names.emplace_back(known.name);
  return names;
}

std::string gate_metric_typed(std::string_view typed) {
  return std::string(trimmed(typed.substr(0, std::min(typed.find_first_of("<>"), typed.size()))));
}

Gate parse_gate(const std::string& typed) {
  const auto refuse = [&](const auto&... parts) {
    fail(ErrorCode::invalid_argument, "limit", "got '", shown(typed), "'; ", parts...);
  };
  const std::string_view all = typed;
  const std::size_t at = all.find_first_of("<>");
  if (at == std::string_view::npos || at == 0)
    refuse("expected a metric, one of < <= > >=, and a number, such as 'cosine<0.999'");
  const std::size_t width = all.substr(at + 1, 1) == "=" ? 2 : 1;
  Gate gate{.typed = typed,
            .metric_name = gate_metric_typed(typed),
            .comparison = std::string(all.substr(at, width))};
  std::string names;
  for (const NamedMetric& known : kMetrics) {
    if (gate.metric_name == known.name) gate.metric = known.metric;
    names += text(names.empty() ? "" : ", ", known.name);
  }
  if (gate.metric == nullptr) refuse("expected one of ", names, " before the ", gate.comparison);
  const std::string_view number = trimmed(all.substr(at + width));
  const auto [end, error] = std::from_chars(number.begin(), number.end(), gate.limit);
  if (error != std::errc{} || end != number.end() || !std::isfinite(gate.limit))
    refuse("expected a number after the ", gate.comparison);
  return gate;
}

bool Gate::is_violated_by(const ErrorMetrics& metrics) const {
  const double got = value(metrics);
  if (std::isnan(got)) return true;  // a metric that could not be computed misses the gate
  const bool equal = comparison.size() == 2 && got == limit;
  return equal || (comparison[0] == '<' ? got < limit : got > limit);
}

std::vector<MissedGate> missed_gates(const CheckpointReport& report,
                                     const std::vector<Gate>& gates) {
  std::vector<MissedGate> out;
  const std::vector<std::size_t> order = report.worst(report.tensors.size());
  for (const Gate& gate : gates) {
    const TensorReport* first = nullptr;
    std::size_t count = 0;
    for (const std::size_t i : order) {
      const TensorReport& tensor = report.tensors[i];
      if (!gate.is_violated_by(tensor.metrics) && uncounted(tensor) == 0) continue;
      if (first == nullptr) first = &tensor;
      ++count;
    }
    if (!report.not_compared.empty()) out.push_back(missed_by(gate, report.not_compared));
    if (first == nullptr) continue;
    const std::string name = text("'", shown(first->name, 120), "'");
    char value[32];
    std::snprintf(value, sizeof value, "%.6g", gate.value(first->metrics));
    std::string what =
        gate.is_violated_by(first->metrics)
            ? text(gate.metric_name, " of ", name, " is ", value)
            : text(counted(uncounted(*first), "value"), " of ", name, " ",
                   plural(uncounted(*first), "is", "are"), " NaN or Inf, which no metric counts");
    if (count > 1) what += text(", and of ", counted(count - 1, "other"));
    out.push_back({gate.typed, std::move(what), first->name, count});
  }
  return out;
}

}  // namespace octavo
