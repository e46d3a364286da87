#include "octavo/report/checkpoint_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "octavo/base/json/json.h"
#include "octavo/report/mix_result_internal.h"

namespace octavo {
namespace {

Json counts_of(const std::vector<std::int64_t>& counts) {
  Json out = Json::array();
  for (const std::int64_t count : counts) out.push(count);
  return out;
}

Json list_of(const std::vector<std::string>& lines) {
  Json out = Json::array();
  for (const std::string& line : lines) out.push(line);
  return out;
}

Json bytes_json(std::uint64_t bytes) { return {static_cast<std::int64_t>(bytes)}; }

// Names follow docs/numerics/metrics.md; what is infinite is null.
Json json_of(const ErrorMetrics& metrics) {
  return Json::object({
      {"elements", metrics.elements},
      {"sqnr", metrics.sqnr},
      {"cosine", metrics.cosine},
      {"relative_l2", metrics.relative_l2},
      {"mse", metrics.mse},
      {"effective_bits", metrics.effective_bits},
      {"max_abs", metrics.max_abs},
      {"max_relative", metrics.max_relative},
      {"amax", metrics.amax},
      {"saturated", metrics.saturated},
      {"flushed", metrics.flushed},
      {"input_nan", metrics.input.nan},
      {"input_inf", metrics.input.inf},
      {"result_nan", metrics.result.nan},
      {"result_inf", metrics.result.inf},
      {"scale_least", metrics.scales.least},
      {"scale_most", metrics.scales.most},
      {"bits_per_value", metrics.bits_per_value},
  });
}

Json json_of(const TensorReport& tensor) {
  Json out = Json::object({{"name", tensor.name},
                           {"module", tensor.module},
                           {"shape", counts_of(tensor.shape)},
                           {"source", tensor.source},
                           {"quantized", !tensor.preset.empty()}});
  if (!tensor.preset.empty()) {
    out.set("preset", tensor.preset);
    out.set("scaling", tensor.scaling);
  }
  if (!tensor.why.empty()) out.set("why", tensor.why);
  if (!std::isnan(tensor.result_error)) {
    out.set("result_error", tensor.result_error);
    out.set("rounded_result_error", tensor.rounded_result_error);
  }
  out.set("bytes_before", bytes_json(tensor.bytes_before));
  out.set("bytes_after", bytes_json(tensor.bytes_after));
  if (tensor.measured) {
    out.set("metrics", json_of(tensor.metrics));
    if (!std::isnan(tensor.expected_sqnr)) {
      out.set("expected_sqnr", tensor.expected_sqnr);
      out.set("expected_cosine", tensor.expected_cosine);
    }
    if (tensor.same_non_finite > 0) out.set("same_non_finite", tensor.same_non_finite);
    const ValueHistogram& values = tensor.metrics.values;
    if (!values.counts.empty())
      out.set("values", Json::object({{"first_exponent", values.first_exponent},
                                      {"counts", counts_of(values.counts)},
                                      {"zeros", values.zeros},
                                      {"counted", counted_values(values)}}));
    if (!tensor.metrics.codes.empty()) out.set("codes", counts_of(tensor.metrics.codes));
  }
  // Most of the 256 exponents are empty: pairs of exponent and count.
  if (!tensor.scale_histogram.empty()) {
    Json scales = Json::array();
    for (std::size_t i = 0; i < tensor.scale_histogram.size(); ++i)
      if (tensor.scale_histogram[i] != 0)
        scales.push(Json::array({static_cast<std::int64_t>(i) - 127, tensor.scale_histogram[i]}));
    out.set("scale_exponents", std::move(scales));
  }
  if (!tensor.advice.empty()) out.set("advice", tensor.advice);
  if (!tensor.recipe_for.empty()) out.set("recipe_for", tensor.recipe_for);
  return out;
}

Json head_of(const CheckpointReport& report) {
  Json out = Json::object({{"title", report.title},
                           {"verb", report.verb},
                           {"source", report.source},
                           {"output", report.output},
                           {"recipe", report.recipe},
                           {"target", report.target}});
  Json provenance = Json::object();
  for (const auto& [key, value] : report.provenance) provenance.set(key, value);
  out.set("provenance", std::move(provenance));
  out.set("bytes_before", bytes_json(report.bytes_before));
  out.set("bytes_after", bytes_json(report.bytes_after));
  out.set("bits_per_weight", report.bits_per_weight);
  out.set("seconds", report.seconds);
  out.set("was_complete", report.was_complete);
  if (report.finished_by_another || report.files_written > 0) {
    out.set("finished_by_another", report.finished_by_another);
    out.set("files_written", report.files_written);
    out.set("files_taken_over", report.files_taken_over);
  }
  out.set("written_again", list_of(report.written_again));
  Json worst = Json::array();
  for (const std::size_t i : report.worst(10)) worst.push(report.tensors[i].name);
  out.set("worst", std::move(worst));
  out.set("notes", list_of(report.notes));
  Json advice = Json::array();
  for (const SharedAdvice& shared : report.advice)
    advice.push(Json::object({{"what", shared.what},
                              {"tensor", shared.tensor},
                              {"advice", shared.advice},
                              {"tensors", shared.tensors},
                              {"far_below_normal", shared.far_below},
                              {"recipe_for", shared.recipe_for}}));
  out.set("advice", std::move(advice));
  if (report.mix) out.set("mix", json_object_of(*report.mix));
  return out;
}

// The lines of a document one level or more down. A line break within a string is escaped.
std::string indented(const std::string& text, std::string_view indent) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += indent;
  }
  return out;
}

// NaN, which no metric should be, is the worst.
double sortable(double sqnr) { return std::isnan(sqnr) ? -INFINITY : sqnr; }

}  // namespace

double order_of(const TensorReport& tensor) {
  return uncounted(tensor) > 0 ? -INFINITY : sortable(tensor.metrics.sqnr);
}

std::vector<bool> with_histograms(const std::vector<double>& sqnrs) {
  std::vector<bool> shown(sqnrs.size(), sqnrs.size() <= kMaxHistograms);
  if (sqnrs.size() <= kMaxHistograms) return shown;
  std::vector<std::size_t> order(sqnrs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(kMaxHistograms);
  std::nth_element(order.begin(), last, order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(sortable(sqnrs[a]), a) < std::pair(sortable(sqnrs[b]), b);
  });
  for (auto at = order.begin(); at != last; ++at) shown[*at] = true;
  return shown;
}

void drop_histograms(TensorReport& tensor) {
  tensor.metrics.values = ValueHistogram();  // the memory too, which {} would keep
  tensor.metrics.codes = std::vector<std::int64_t>();
  tensor.results = ValueHistogram();
  tensor.scale_histogram = std::vector<std::int64_t>();
}

std::vector<std::size_t> CheckpointReport::worst(std::size_t most) const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].measured) order.push_back(i);
  // Equals stay in the order of names.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return order_of(tensors[a]) < order_of(tensors[b]);
  });
  if (order.size() > most) order.resize(most);
  return order;
}

std::string json_of(const CheckpointReport& report) {
  std::string out;
  write_json(report, {}, [&](std::string_view piece) { out += piece; });
  return out;
}

void begin_json(const CheckpointReport& report, const PutText& put) {
  std::string head = head_of(report).dump();
  head.erase(head.rfind('\n'));  // before the brace that ends it
  put(head);
  put(",\n  \"tensors\": [");
  std::string_view before = "\n    ";
  for (const TensorReport& tensor : report.tensors) {
    put(before);
    put(indented(json_of(tensor).dump(), "    "));
    before = ",\n    ";
  }
  put(report.tensors.empty() ? "]" : "\n  ]");
}

void end_json(const JsonMembers& more, const PutText& put) {
  for (const auto& [key, value] : more) {
    put(",\n  ");
    put(Json(key).dump());
    put(": ");
    put(indented(value, "  "));
  }
  put("\n}");
}

void write_json(const CheckpointReport& report, const JsonMembers& more, const PutText& put) {
  begin_json(report, put);
  end_json(more, put);
}

}  // namespace octavo
