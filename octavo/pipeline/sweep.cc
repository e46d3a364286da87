#include "octavo/pipeline/sweep.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/pipeline/compare_settings_internal.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/choose_format.h"
#include "octavo/report/metrics.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "sweep";

struct Sweepable {
  std::string_view name;
  std::string QuantizePlanOptions::*field;
};
constexpr std::array<Sweepable, 7> kSweepable{{{"recipe", &QuantizePlanOptions::recipe},
                                               {"format", &QuantizePlanOptions::format},
                                               {"tile", &QuantizePlanOptions::tile},
                                               {"scale", &QuantizePlanOptions::scale_format},
                                               {"scale-rule", &QuantizePlanOptions::scale_rule},
                                               {"scale-policy", &QuantizePlanOptions::scale_policy},
                                               {"arith", &QuantizePlanOptions::arith}}};

std::string QuantizePlanOptions::*field_of(std::string_view option) {
  std::string known;
  for (const Sweepable& one : kSweepable) {
    if (one.name == option) return one.field;
    known += text(known.empty() ? "" : ", ", one.name);
  }
  fail(ErrorCode::invalid_argument, kOp, "got the option '", shown(option), "'; expected one of ",
       known);
}

struct Combination {
  SweepPoint point;
  QuantizePlanOptions plan;
};

void check_axes(const std::vector<SweepAxis>& axes) {
  check(!axes.empty(), ErrorCode::invalid_argument, kOp,
        "got no options to sweep; expected at least one, such as tile=16,32,64,128");
  double count = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    (void)field_of(axes[i].option);
    for (std::size_t j = 0; j < i; ++j)
      check(axes[j].option != axes[i].option, ErrorCode::invalid_argument, kOp, "got the option ",
            axes[i].option, " twice; expected its values in one list");
    check(!axes[i].values.empty(), ErrorCode::invalid_argument, kOp, "got no values for ",
          axes[i].option, "; expected at least one");
    count *= static_cast<double>(axes[i].values.size());
  }
  check(count <= static_cast<double>(kMaxSweepPoints), ErrorCode::invalid_argument, kOp, "got ",
        count, " combinations; expected ", kMaxSweepPoints, " at most; sweep in parts");
}

// The last axis changes fastest.
std::vector<Combination> combinations(const std::vector<SweepAxis>& axes,
                                      const QuantizePlanOptions& base) {
  check_axes(axes);
  std::vector<Combination> out{{.point = {}, .plan = base}};
  for (const SweepAxis& axis : axes) {
    std::vector<Combination> longer;
    for (const Combination& one : out)
      for (const std::string& value : axis.values) {
        Combination made = one;
        made.point.settings.emplace_back(axis.option, value);
        made.plan.*field_of(axis.option) = value;
        longer.push_back(std::move(made));
      }
    out = std::move(longer);
  }
  for (const Combination& one : out)
    check(!one.plan.recipe.empty(), ErrorCode::invalid_argument, kOp,
          "got no recipe; expected one, or several to sweep (recipe=fp8-1x128,mxfp8)");
  return out;
}

// Values of options that mean nothing anywhere are wrong usage, not a result.
void check_values(const std::vector<SweepAxis>& axes) {
  for (const SweepAxis& axis : axes)
    for (const std::string& value : axis.values) {
      Scaling scratch;
      if (axis.option == "recipe" && !is_mixed_recipe(value)) (void)preset(value);
      if (axis.option == "format" && value != kMeasuredFormat) (void)parse_format(value);
      if (axis.option == "tile") (void)parse_block(value, {});
      if (axis.option == "scale") (void)parse_scale_format(value);
      if (axis.option == "scale-rule") (void)parse_scale_rule(value);
      if (axis.option == "scale-policy") parse_amax_policy(value, scratch);
      if (axis.option == "arith") (void)parse_arith(value);
    }
}

// Finite values of which there is no error; all of them, where there is no value that is finite.
std::int64_t uncounted_in(const ErrorMetrics& of) {
  if (of.sums.count == 0) return of.elements;
  // Values that were clamped are among those of the input that are not finite, and have an error.
  return std::max<std::int64_t>(0, of.elements - of.input.nan - of.input.inf - of.sums.count);
}

// Over all weights that were measured: sums of squares add up.
void sum_weights(const CheckpointReport& report, SweepPoint& point) {
  double error2 = 0, value2 = 0, cosine = 1;
  double worst = std::numeric_limits<double>::infinity();
  for (const TensorReport& tensor : report.tensors) {
    if (!tensor.measured) continue;
    const double unit2 = tensor.metrics.sums.unit * tensor.metrics.sums.unit;
    error2 += tensor.metrics.sums.error2 * unit2;
    value2 += tensor.metrics.sums.value2 * unit2;
    worst = std::min(worst, order_of(tensor));
    cosine = std::min(cosine, tensor.metrics.cosine);
    point.uncounted += uncounted_in(tensor.metrics);
  }
  const ErrorSums sums{.count = 1, .error2 = error2, .value2 = value2};
  point.relative_l2 = sums.relative_l2();
  point.sqnr = sums.sqnr();
  point.worst_sqnr = worst;
  point.cosine = cosine;
}

void measure(const View& values, const Scaling& asked, int threads, SweepPoint& point) {
  constexpr int kRuns = 5;
  using Clock = std::chrono::steady_clock;
  point.seconds = std::numeric_limits<double>::infinity();
  QuantizedTensor q = quantize(values, asked, {.threads = threads});
  for (int run = 0; run < kRuns; ++run) {
    const Clock::time_point start = Clock::now();
    quantize_into(values, q, {.threads = threads});
    point.seconds =
        std::min(point.seconds, std::chrono::duration<double>(Clock::now() - start).count());
  }
  const ErrorMetrics found = measure_error(values, q, {.threads = threads});
  point.scaling = describe(asked);
  point.bytes = static_cast<std::uint64_t>(q.nbytes());
  point.bits_per_value = found.bits_per_value;
  point.relative_l2 = found.relative_l2;
  point.sqnr = point.worst_sqnr = found.sqnr;
  point.cosine = found.cosine;
  point.uncounted = uncounted_in(found);
}

}  // namespace

std::vector<std::string> sweep_options() {
  std::vector<std::string> out;
  for (const Sweepable& one : kSweepable) out.emplace_back(one.name);
  return out;
}

SweepAxis parse_sweep(std::string_view typed) {
  const std::size_t equals = typed.find('=');
  check(equals != typed.npos, ErrorCode::invalid_argument, kOp, "got '", shown(typed),
        "'; expected OPTION=VALUE,VALUE, such as tile=16,32,64,128");
  SweepAxis axis{.option = std::string(typed.substr(0, equals)), .values = {}};
  (void)field_of(axis.option);
  for (std::string_view rest = typed.substr(equals + 1);;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string value(rest.substr(0, comma));
    check(!value.empty(), ErrorCode::invalid_argument, kOp, "got '", shown(typed),
          "', in which a value is empty; expected OPTION=VALUE,VALUE");
    check(std::find(axis.values.begin(), axis.values.end(), value) == axis.values.end(),
          ErrorCode::invalid_argument, kOp, "got ", axis.option, " ", shown(value),
          " twice; expected each value once");
    axis.values.push_back(std::move(value));
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  check_values({axis});
  return axis;
}

SweepResult sweep_checkpoint(const std::string& source, const std::vector<SweepAxis>& axes,
                             const QuantizeCheckpointOptions& options) {
  check_values(axes);
  std::vector<Combination> all = combinations(axes, options.plan);
  std::vector<NamedSetting> settings;
  for (const Combination& one : all)
    settings.push_back({.name = name_of(one.point), .plan = one.plan});
  const RecipeComparison compared = compare_settings(source, settings, options);
  SweepResult out{.title = compared.title,
                  .source = compared.source,
                  .target = compared.target,
                  .bytes_before = compared.bytes_before,
                  .timed = "reading, quantizing and measuring, one run",
                  .axes = axes,
                  .points = {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const RecipeOutcome& outcome = compared.recipes[i];
    SweepPoint& point = all[i].point;
    point.why_not = outcome.why_not;
    const bool any = std::any_of(outcome.report.tensors.begin(), outcome.report.tensors.end(),
                                 [](const TensorReport& tensor) { return tensor.measured; });
    if (point.why_not.empty() && !any) point.why_not = "nothing is quantized";
    if (point.why_not.empty()) {
      point.bytes = outcome.report.bytes_after;
      point.bits_per_value = outcome.report.bits_per_weight;
      point.seconds = outcome.seconds;
      sum_weights(outcome.report, point);
    }
    out.points.push_back(std::move(point));
  }
  return out;
}

SweepResult sweep_array(const View& values, const std::vector<SweepAxis>& axes,
                        const QuantizePlanOptions& base, int threads) {
  check_values(axes);
  SweepResult out{.timed = "quantizing, the least of five runs", .axes = axes, .points = {}};
  out.bytes_before =
      static_cast<std::uint64_t>(element_count(values.shape) * element_bytes(values.dtype));
  QuantizePlanOptions plan = base;
  plan.target = Dialect::octavo;  // no loader limits what an array can be
  std::exception_ptr first_refusal;
  for (Combination& one : combinations(axes, plan)) {
    try {
      // Of an array a recipe is the preset; checkpoints have another rule for MXFP4.
      if (one.plan.recipe == "mxfp4" && one.plan.scale_rule.empty()) one.plan.scale_rule = "rceil";
      Scaling scaling = recipe_scaling(one.plan.recipe, one.plan);
      check(scaling.policy != AmaxPolicy::wmse, ErrorCode::invalid_argument, kOp,
            "got policy wmse, which weighs errors by the inputs of a Linear, and an array does not "
            "say them; expected another, such as mse");
      if (one.plan.format == kMeasuredFormat) scaling = choose_format(values, scaling, threads);
      measure(values, scaling, threads, one.point);
    } catch (const Error& error) {
      if (!first_refusal) first_refusal = std::current_exception();
      one.point.why_not = reason_of(error);
    }
    out.points.push_back(std::move(one.point));
  }
  if (std::none_of(out.points.begin(), out.points.end(),
                   [](const SweepPoint& point) { return point.why_not.empty(); }))
    std::rethrow_exception(first_refusal);
  return out;
}

}  // namespace octavo
