// The report as a text table and as JSON.

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/npy/npy.h"
#include "cli/tensor/quantize_report.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/backend/registry.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"

namespace octavo::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWorstShown = 3, kWorstListed = 10;

std::vector<std::int64_t> sizes_of(const Shape& shape) {
  return {shape.sizes().begin(), shape.sizes().end()};
}

// JSON has no NaN and no Inf.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string figure(double value) {
  if (std::isinf(value)) return value > 0 ? "infinite" : "-infinite";
  return formatted("{:.5g}", value);
}

std::string counted(std::int64_t count, double share) {
  return count == 0 ? "0" : formatted("{} ({:.3g} %)", grouped(count), 100 * share);
}

// Two names and numbers side by side.
std::string line(std::string_view left, const std::string& left_value, std::string_view right = "",
                 const std::string& right_value = "") {
  std::string out = formatted("  {:<14}  {:<20}  {:<14}  {}", left, left_value, right, right_value);
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string scale_text(const ScaleRange& scales) {
  std::string out = grouped(scales.count);
  if (scales.most > 0)
    out += scales.least == scales.most ? formatted(", {}", short_number(scales.least))
                                       : formatted(", from {} to {}", short_number(scales.least),
                                                   short_number(scales.most));
  if (scales.nan > 0) out += formatted("; {} NaN", grouped(scales.nan));
  if (scales.zero > 0) out += formatted("; {} zero", grouped(scales.zero));
  return out;
}

std::string worst_text(const QuantizeReport& report, const Style& style) {
  const Parts parts = parts_of(report);
  if (parts.sums->size() < 2 || report.metrics.sums.error2 == 0) return "";
  std::string out = style.bold(formatted("\n  {:<14}  {:<20}  {:<14}  {:<14}  {}\n",
                                         formatted("worst {}s", parts.word()), "where",
                                         "share of error", "relative L2", "max absolute"));
  for (const std::int64_t index : worst_parts(parts, kWorstShown)) {
    const ErrorSums& part = (*parts.sums)[static_cast<std::size_t>(index)];
    out += formatted("  {:<14}  {:<20}  {:<14}  {:<14}  {}\n", grouped(index),
                     slice_of(report, parts, index),
                     formatted("{:.3g} %", 100 * error_share(report, part)),
                     figure(part.relative_l2()), figure(part.max_abs));
  }
  return out + formatted("  {:<14}  {:<20}  {:<14}  {}\n", "median", "", "",
                         figure(median_relative_l2(parts)));
}

Json json_of_scaling(const Scaling& scaling) {
  Json out{{"description", describe(scaling)},
           {"format", format_name(scaling.format)},
           {"tile", {scaling.tile.rows, scaling.tile.cols}},
           {"axis", scaling.axis},
           {"scale", name_of(scaling.scale.format)},
           {"scale_rule", name_of(scaling.scale.rule)},
           {"scale_policy", name_of(scaling.policy)},
           {"percentile", nullptr},
           {"margin", scaling.scale.margin},
           {"arith", name_of(scaling.scale.arith)},
           {"non_finite", name_of(scaling.scale.non_finite)},
           {"rounding", name_of(scaling.encode.rounding)},
           {"overflow", name_of(scaling.encode.overflow)},
           {"nan", name_of(scaling.encode.nan_input)}};
  if (scaling.policy == AmaxPolicy::percentile) out["percentile"] = scaling.percentile;
  if (scaling.encode.rounding == Rounding::stochastic) {
    out["seed"] = scaling.encode.seed;
    out["stochastic_bits"] = scaling.encode.stochastic_bits;
  }
  return out;
}

Json json_of_parts(const QuantizeReport& report, const Parts& parts) {
  Json worst = Json::array();
  for (const std::int64_t index : worst_parts(parts, kWorstListed)) {
    const ErrorSums& part = (*parts.sums)[static_cast<std::size_t>(index)];
    worst.push_back({{"index", index},
                     {"slice", slice_of(report, parts, index)},
                     {"error_share", number(error_share(report, part))},
                     {"relative_l2", number(part.relative_l2())},
                     {"mse", number(part.mse())},
                     {"max_abs", number(part.max_abs)}});
  }
  return {{"count", parts.sums->size()},
          {"median_relative_l2", number(median_relative_l2(parts))},
          {"worst", worst}};
}

Json json_of_metrics(const ErrorMetrics& m) {
  return {{"mse", number(m.mse)},
          {"relative_l2", number(m.relative_l2)},
          {"sqnr", number(m.sqnr)},
          {"effective_bits", number(m.effective_bits)},
          {"cosine", number(m.cosine)},
          {"max_abs", number(m.max_abs)},
          {"max_relative", number(m.max_relative)},
          {"amax", number(m.amax)},
          {"saturated", m.saturated_share},
          {"flushed", m.flushed_share},
          {"saturated_count", m.saturated},
          {"flushed_count", m.flushed},
          {"input", {{"nan", m.input.nan}, {"inf", m.input.inf}}},
          {"result", {{"nan", m.result.nan}, {"inf", m.result.inf}}}};
}

}  // namespace

std::string shape_and_type(const QuantizeReport& report) {
  return formatted("{} {}", shape_text(sizes_of(report.shape)), dtype_name(report.dtype));
}

std::string table_of(const QuantizeReport& report) {
  const Style style(stdout);
  const ErrorMetrics& m = report.metrics;
  std::string out = formatted("{} {}\n{}\n\n", report.input, shape_and_type(report),
                              style.bold(describe(report.scaling)));
  // Without a finite pair the metrics are defined only by convention.
  const auto shown = [&](const std::string& value) { return m.sums.count > 0 ? value : "-"; };
  out += line("SQNR", shown(figure(m.sqnr) + (std::isfinite(m.sqnr) ? " dB" : "")), "relative L2",
              shown(figure(m.relative_l2)));
  out += line("effective bits", shown(figure(m.effective_bits)), "cosine",
              shown(formatted("{:.8f}", m.cosine)));
  out += line("max absolute", shown(figure(m.max_abs)), "mse", shown(figure(m.mse)));
  out += line("max relative", shown(figure(m.max_relative)), "largest value", short_number(m.amax));
  out += line("saturated", counted(m.saturated, m.saturated_share), "flushed to 0",
              counted(m.flushed, m.flushed_share));
  out += line("NaN, Inf in", formatted("{}, {}", grouped(m.input.nan), grouped(m.input.inf)),
              "NaN, Inf out", formatted("{}, {}", grouped(m.result.nan), grouped(m.result.inf)));
  out += line("bits a value", figure(m.bits_per_value), "stored",
              bytes_text(static_cast<double>(report.nbytes)));
  out += line("scales", scale_text(m.scales));
  return out + worst_text(report, style) + "\n" + verdict_of(report) + "\n";
}

Json json_of(const QuantizeReport& report) {
  const ErrorMetrics& m = report.metrics;
  Json gates = Json::array();
  for (const Gate& gate : report.gates)
    gates.push_back({{"fail_if", gate.typed},
                     {"value", number(gate.value(m))},
                     {"missed", misses(report, gate)}});
  const Parts rows{.are_tiles = false, .sums = &m.rows}, tiles{.are_tiles = true, .sums = &m.tiles};
  return {{"input", report.input},
          {"shape", sizes_of(report.shape)},
          {"dtype", dtype_name(report.dtype)},
          {"elements", m.elements},
          {"scaling", json_of_scaling(report.scaling)},
          {"metrics", json_of_metrics(m)},
          {"scales",
           {{"count", m.scales.count},
            {"least", m.scales.least},
            {"most", m.scales.most},
            {"nan", m.scales.nan},
            {"zero", m.scales.zero}}},
          {"nbytes", report.nbytes},
          {"bits_per_value", m.bits_per_value},
          {"rows", json_of_parts(report, rows)},
          {"tiles", json_of_parts(report, tiles)},
          {"histogram",
           {{"first_exponent", m.values.first_exponent},
            {"values", m.values.counts},
            {"zeros", m.values.zeros},
            {"codes", m.codes}}},
          {"verdict", verdict_of(report)},
          {"fail_if", gates},
          {"backend", cpu_backend().name},
          {"seconds", report.seconds}};
}

}  // namespace octavo::cli
