#include "cli/gate.h"

#include <array>
#include <charconv>
#include <cmath>

#include "cli/names.h"

namespace octavo::cli {
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

}  // namespace

std::vector<std::string> gate_metric_names() {
  std::vector<std::string> names;
  names.reserve(kMetrics.size());
  for (const NamedMetric& known : kMetrics) names.emplace_back(known.name);
  return names;
}

Gate parse_gate(const std::string& typed) {
  const auto refuse = [&](const auto&... parts) {
    throw UsageError(text("[quantize] --fail-if: got '", shown(typed), "', ", parts...));
  };
  const std::string_view all = typed;
  const std::size_t at = all.find_first_of("<>");
  if (at == std::string_view::npos || at == 0)
    refuse("wanted a metric, one of < <= > >=, and a number, such as 'cosine<0.999'");
  const std::size_t width = all.substr(at + 1, 1) == "=" ? 2 : 1;
  Gate gate{.typed = typed,
            .metric_name = std::string(trimmed(all.substr(0, at))),
            .comparison = std::string(all.substr(at, width))};
  for (const NamedMetric& known : kMetrics)
    if (gate.metric_name == known.name) gate.metric = known.metric;
  if (gate.metric == nullptr)
    refuse("wanted one of ", listed(gate_metric_names()), " before the ", gate.comparison, ".",
           did_you_mean(gate.metric_name, gate_metric_names()));
  const std::string_view number = trimmed(all.substr(at + width));
  const auto [end, error] = std::from_chars(number.begin(), number.end(), gate.limit);
  if (error != std::errc{} || end != number.end() || !std::isfinite(gate.limit))
    refuse("wanted a number behind the ", gate.comparison);
  return gate;
}

bool Gate::holds(const ErrorMetrics& metrics) const {
  const double got = value(metrics);
  if (std::isnan(got)) return true;  // what could not be computed has not been shown to be good
  const bool equal = comparison.size() == 2 && got == limit;
  return equal || (comparison[0] == '<' ? got < limit : got > limit);
}

}  // namespace octavo::cli
