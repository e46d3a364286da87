#include "octavo/report/gate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

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

std::string named(std::string_view tensor) { return text("'", shown(tensor, 120), "'"); }

std::string value_text(const Gate& gate, const std::string& tensor, double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.6g", value);
  return text(gate.metric_name, " of ", named(tensor), " is ", digits);
}

std::string uncounted_text(std::int64_t values, const std::string& tensor) {
  return text(counted(values, "value"), " of ", named(tensor), " ", plural(values, "is", "are"),
              " NaN or Inf, which no metric counts");
}

// Of a folder that was complete: by what it keeps of the run that made it.
std::vector<MissedGate> missed_by_ranges(const std::optional<ErrorRanges>& ranges,
                                         const std::vector<Gate>& gates) {
  std::vector<MissedGate> out;
  if (gates.empty()) return out;
  check(ranges.has_value(), ErrorCode::invalid_argument, "limit",
        "the folder was complete, and does not say what its errors are; octavo compare measures "
        "them, and judges limits");
  for (const Gate& gate : gates) {
    const MetricRange* const range = ranges->find(gate.metric_name);
    const bool least = gate.comparison.starts_with('<');
    if (range != nullptr && gate.is_violated_by(least ? range->least : range->greatest)) {
      const std::string& tensor = least ? range->least_of : range->greatest_of;
      out.push_back({gate.typed, value_text(gate, tensor, least ? range->least : range->greatest),
                     tensor, 1});
    } else if (ranges->uncounted > 0) {
      out.push_back({gate.typed, uncounted_text(ranges->uncounted, ranges->uncounted_of),
                     ranges->uncounted_of, 1});
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> gate_metric_names() {
  std::vector<std::string> names;
  names.reserve(named_metrics().size());
  for (const NamedMetric& known : named_metrics()) names.emplace_back(known.name);
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
  for (const NamedMetric& known : named_metrics()) {
    if (gate.metric_name == known.name) gate.metric = known.value;
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
  return is_violated_by(value(metrics));
}

bool Gate::is_violated_by(double value) const {
  const double got = six_digits(value);
  if (std::isnan(got)) return true;  // a metric that could not be computed misses the gate
  const bool equal = comparison.size() == 2 && got == limit;
  return equal || (comparison[0] == '<' ? got < limit : got > limit);
}

std::vector<MissedGate> missed_gates(const CheckpointReport& report,
                                     const std::vector<Gate>& gates) {
  if (report.was_complete) return missed_by_ranges(report.ranges, gates);
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
    std::string what = gate.is_violated_by(first->metrics)
                           ? value_text(gate, first->name, gate.value(first->metrics))
                           : uncounted_text(uncounted(*first), first->name);
    if (count > 1) what += text(", and of ", counted(count - 1, "other"));
    out.push_back({gate.typed, std::move(what), first->name, count});
  }
  return out;
}

}  // namespace octavo
