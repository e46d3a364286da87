// Whole checkpoints: quantize, convert, dequantize, compare, verify, inspect.
#include <nanobind/stl/function.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/base/launcher.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/model/statistics/input_statistics_file.h"
#include "octavo/pipeline/compare_checkpoints.h"
#include "octavo/pipeline/compare_recipes.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/inspect_checkpoint.h"
#include "octavo/pipeline/mix/mix.h"
#include "octavo/pipeline/plan/file/plan_file.h"
#include "octavo/pipeline/quantize_checkpoint.h"
#include "octavo/pipeline/sweep.h"
#include "octavo/pipeline/verify_against.h"
#include "octavo/report/gate.h"
#include "watched.h"

namespace octavo::python {
namespace {

QuantizePlanOptions plan_options(const std::string& recipe, const std::string& target,
                                 const std::string& format, const std::string& tile,
                                 const std::string& scale_rule, const std::string& arith,
                                 const std::string& scale_policy, const std::string& scale_format,
                                 const std::vector<std::string>& include,
                                 const std::vector<std::string>& exclude,
                                 const std::vector<std::pair<std::string, std::string>>& recipe_for,
                                 bool share, bool bf16_scales, bool clamp_non_finite,
                                 std::uint64_t shard_bytes, const std::string& statistics,
                                 const std::string& model, const std::string& out,
                                 const std::string& input_scales, const std::string& kv_scales) {
  return {.recipe = recipe,
          .target = parse_dialect(target),
          .format = format,
          .tile = tile,
          .scale_rule = scale_rule,
          .arith = arith,
          .scale_policy = scale_policy,
          .scale_format = scale_format,
          .include = include,
          .exclude = exclude,
          .recipe_for = recipe_for,
          .share = share,
          .bf16_scales = bf16_scales,
          .clamp_non_finite = clamp_non_finite,
          .shard_bytes = shard_bytes,
          .statistics = statistics.empty()
                            ? nullptr
                            : open_input_statistics(statistics, model, deleted_shards_of(out)),
          .input_scales = parse_static_scale_source(input_scales),
          .kv_scales = parse_static_scale_source(kv_scales)};
}

// One of several processes with a plan file; -1: as the launcher says. Without a plan there is
// none.
std::optional<SharedRun> shared_run(const std::string& plan, int rank, int world,
                                    double takeover_after) {
  if (plan.empty()) return std::nullopt;
  GivenRank given;
  if (rank >= 0) given.rank = rank;
  if (world >= 0) given.world = world;
  const RankOfWorld me = rank_of_world("quantize_checkpoint", given);
  return SharedRun{plan, me.rank, me.world, takeover_after};
}

CheckpointReport quantize(const std::string& source, const std::string& out,
                          const QuantizePlanOptions& plan, int threads, std::uint64_t max_memory,
                          bool resume, bool follow_links, bool delete_source,
                          const nb::object& progress, const std::string& plan_file, int rank,
                          int world, double takeover_after, const MixChoice* mix) {
  QuantizeCheckpointOptions options{.plan = plan,
                                    .threads = threads,
                                    .max_memory = max_memory,
                                    .resume = resume,
                                    .follow_links = follow_links,
                                    .delete_source = delete_source,
                                    .shared = shared_run(plan_file, rank, world, takeover_after)};
  return watched(progress, [&](const OnProgress& on_progress) {
    options.on_progress = on_progress;
    CheckpointReport report = quantize_checkpoint(source, out, options);
    if (mix != nullptr) report.mix = mix->result;
    return report;
  });
}

// Recipes for the parts of a model; bits or bytes, and 0 for the other.
MixChoice choose(const std::string& source, const QuantizePlanOptions& plan, double bits,
                 std::uint64_t bytes, const std::vector<std::string>& candidates, int threads,
                 std::uint64_t max_memory, bool follow_links, const nb::object& progress) {
  const MixBudget budget{.bits_per_weight = bits, .bytes = bytes, .candidates = candidates};
  return watched(progress, [&](const OnProgress& on_progress) {
    return choose_mix(source, budget,
                      {.plan = plan,
                       .threads = threads,
                       .max_memory = max_memory,
                       .follow_links = follow_links,
                       .on_progress = on_progress});
  });
}

std::string plan_json(const std::string& path, const QuantizePlanOptions& options,
                      bool follow_links) {
  const nb::gil_scoped_release released;
  const CheckpointReader source = open_values(path, copied_files(follow_links));
  const QuantizePlan plan = plan_quantize(source, options);
  std::string out;
  write_plan_file(source, plan, {.follow_links = follow_links},
                  [&](std::string_view piece) { out += piece; });
  return out;
}

nb::dict convert_dict(const ConvertCheckpointResult& result) {
  nb::dict out;
  out["dialect"] = std::string(name_of(result.from));
  out["weights"] = result.weights;
  out["bytes_before"] = result.bytes_before;
  out["bytes_after"] = result.bytes_after;
  out["seconds"] = result.seconds;
  out["was_complete"] = result.was_complete;
  out["written_again"] = result.written_again;
  out["notes"] = result.notes;
  return out;
}

// `to` is a dialect, or empty, and then `dtype` says what becomes of the weights.
nb::dict convert(const std::string& source, const std::string& out, const std::string& to,
                 const std::string& dtype, int threads, std::uint64_t max_memory, bool resume,
                 bool follow_links, bool clamp_non_finite, const nb::object& progress) {
  const auto target = to.empty() ? Dialect::octavo : parse_dialect(to);
  const DType wanted = dtype == "bfloat16"  ? DType::bf16
                       : dtype == "float16" ? DType::f16
                                            : DType::f32;
  return convert_dict(watched(progress, [&](const OnProgress& on_progress) {
    const ConvertCheckpointOptions options{.threads = threads,
                                           .max_memory = max_memory,
                                           .resume = resume,
                                           .follow_links = follow_links,
                                           .clamp_non_finite = clamp_non_finite,
                                           .on_progress = on_progress};
    return to.empty() ? dequantize_checkpoint(source, out, wanted, options)
                      : convert_checkpoint(source, out, target, options);
  }));
}

// Documents of the library as text, which Python parses: what --json prints.
std::string verify_json(const std::string& path, const std::vector<std::string>& loaders,
                        int tensor_parallel, bool codes, const std::string& against) {
  const nb::gil_scoped_release released;
  VerifyOptions options{.tensor_parallel = tensor_parallel, .codes = codes};
  for (const std::string& name : loaders) options.loaders.push_back(parse_loader(name));
  Verification seen = verify_all(CheckpointReader(path), options);
  if (!against.empty())
    for (Finding& finding : verify_against(path, against))
      seen.findings.push_back(std::move(finding));
  return json_of(seen);
}

std::string inspect_json(const std::string& path, bool statistics) {
  const nb::gil_scoped_release released;
  return json_of(inspect_checkpoint(path, {.statistics = statistics}));
}

// (limit, what of it) for each that a report misses.
std::vector<std::pair<std::string, std::string>> missed(const CheckpointReport& report,
                                                        const std::vector<std::string>& limits) {
  std::vector<Gate> gates;
  for (const std::string& limit : limits) gates.push_back(parse_gate(limit));
  std::vector<std::pair<std::string, std::string>> out;
  for (const MissedGate& one : missed_gates(report, gates)) out.emplace_back(one.typed, one.what);
  return out;
}

using Axes = std::vector<std::pair<std::string, std::vector<std::string>>>;

std::vector<SweepAxis> axes_of(const Axes& given) {
  std::vector<SweepAxis> axes;
  for (const auto& [option, values] : given) axes.push_back({option, values});
  return axes;
}

}  // namespace

void bind_pipeline(nb::module_& module) {
  nb::class_<CheckpointReport>(module, "CheckpointReport")
      .def("json", [](const CheckpointReport& report) { return json_of(report); })
      .def("html", [](const CheckpointReport& report) { return html_of(report); })
      .def("missed", &missed, nb::arg("limits"));
  nb::class_<RecipeComparison>(module, "RecipeComparison")
      .def("json", [](const RecipeComparison& comparison) { return json_of(comparison); })
      .def("html", [](const RecipeComparison& comparison) { return html_of(comparison); });
  nb::class_<SweepResult>(module, "SweepResult")
      .def("json", [](const SweepResult& sweep) { return json_of(sweep); })
      .def("html", [](const SweepResult& sweep) { return html_of(sweep); });
  nb::class_<QuantizePlanOptions>(module, "QuantizePlanOptions");
  nb::class_<MixChoice>(module, "MixChoice")
      .def_prop_ro("options", [](const MixChoice& mix) { return mix.plan; })
      .def("json", [](const MixChoice& mix) { return json_of(*mix.result); });
  module.def("choose_mix", &choose, nb::arg("source"), nb::arg("options"), nb::kw_only(),
             nb::arg("bits"), nb::arg("bytes"), nb::arg("candidates"), nb::arg("threads"),
             nb::arg("max_memory"), nb::arg("follow_links"), nb::arg("progress").none());
  module.def("parse_bits_per_weight", &parse_bits_per_weight, nb::arg("text"));
  module.def("mixed_recipe_names", &mixed_recipe_names);
  module.def("plan_options", &plan_options, nb::kw_only(), nb::arg("recipe"), nb::arg("target"),
             nb::arg("format"), nb::arg("tile"), nb::arg("scale_rule"), nb::arg("arith"),
             nb::arg("scale_policy"), nb::arg("scale_format"), nb::arg("include"),
             nb::arg("exclude"), nb::arg("recipe_for"), nb::arg("share"), nb::arg("bf16_scales"),
             nb::arg("clamp_non_finite"), nb::arg("shard_bytes"), nb::arg("statistics") = "",
             nb::arg("model") = "", nb::arg("out") = "", nb::arg("input_scales") = "none",
             nb::arg("kv_scales") = "none");
  module.def("plan_checkpoint", &plan_json, nb::arg("source"), nb::arg("options"), nb::kw_only(),
             nb::arg("follow_links"));
  module.def(
      "check_limit", [](const std::string& limit) { (void)parse_gate(limit); }, nb::arg("limit"));
  module.def("quantize_checkpoint", &quantize, nb::arg("source"), nb::arg("out"),
             nb::arg("options"), nb::kw_only(), nb::arg("threads"), nb::arg("max_memory"),
             nb::arg("resume"), nb::arg("follow_links"), nb::arg("delete_source") = false,
             nb::arg("progress").none(), nb::arg("plan") = "", nb::arg("rank") = -1,
             nb::arg("world") = -1, nb::arg("takeover_after") = 120.0,
             nb::arg("mix").none() = nb::none());
  module.def("convert_checkpoint", &convert, nb::arg("source"), nb::arg("out"), nb::kw_only(),
             nb::arg("to"), nb::arg("dtype"), nb::arg("threads"), nb::arg("max_memory"),
             nb::arg("resume"), nb::arg("follow_links"), nb::arg("clamp_non_finite"),
             nb::arg("progress").none());
  module.def(
      "compare_checkpoints",
      [](const std::string& a, const std::string& b, int threads, const nb::object& progress) {
        return watched(progress, [&](const OnProgress& on_progress) {
          return compare_checkpoints(a, b, {.threads = threads, .on_progress = on_progress});
        });
      },
      nb::arg("a"), nb::arg("b"), nb::kw_only(), nb::arg("threads"), nb::arg("progress").none());
  module.def(
      "compare_recipes",
      [](const std::string& source, const std::vector<std::string>& recipes,
         const QuantizePlanOptions& plan, int threads, std::uint64_t max_memory,
         const nb::object& progress) {
        return watched(progress, [&](const OnProgress& on_progress) {
          return compare_recipes(source, recipes,
                                 {.plan = plan,
                                  .threads = threads,
                                  .max_memory = max_memory,
                                  .on_progress = on_progress});
        });
      },
      nb::arg("source"), nb::arg("recipes"), nb::arg("options"), nb::kw_only(), nb::arg("threads"),
      nb::arg("max_memory"), nb::arg("progress").none());
  module.def(
      "sweep_checkpoint",
      [](const std::string& source, const Axes& axes, const QuantizePlanOptions& plan, int threads,
         std::uint64_t max_memory, const nb::object& progress) {
        return watched(progress, [&](const OnProgress& on_progress) {
          return sweep_checkpoint(source, axes_of(axes),
                                  {.plan = plan,
                                   .threads = threads,
                                   .max_memory = max_memory,
                                   .on_progress = on_progress});
        });
      },
      nb::arg("source"), nb::arg("axes"), nb::arg("options"), nb::kw_only(), nb::arg("threads"),
      nb::arg("max_memory"), nb::arg("progress").none());
  module.def(
      "sweep_array",
      [](const View& values, const Axes& axes, const QuantizePlanOptions& plan,
         const std::string& title, int threads) {
        const nb::gil_scoped_release released;
        SweepResult out = sweep_array(values, axes_of(axes), plan, threads);
        out.title = title;
        return out;
      },
      nb::arg("values"), nb::arg("axes"), nb::arg("options"), nb::kw_only(), nb::arg("title"),
      nb::arg("threads"));
  module.def("sweep_options", &sweep_options);
  module.def("verify_checkpoint", &verify_json, nb::arg("path"), nb::kw_only(), nb::arg("loaders"),
             nb::arg("tensor_parallel"), nb::arg("codes"), nb::arg("against"));
  module.def("inspect_checkpoint", &inspect_json, nb::arg("path"), nb::kw_only(),
             nb::arg("statistics"));
  module.def("most_threads", [] { return kMaxThreads; });
  module.def("most_world", [] { return kMaxWorld; });
  module.def("dialect_names", &dialect_names);
  module.def("loader_names", &loader_names);
}

}  // namespace octavo::python
