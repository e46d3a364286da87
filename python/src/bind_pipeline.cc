// Whole checkpoints: quantize, convert, dequantize, compare, verify, inspect.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <set>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect.h"
#include "octavo/checkpoint/verify.h"
#include "octavo/pipeline/compare_checkpoints.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo::python {
namespace {

// Runs `work` without the GIL and hands its progress to Python. An exception of the callback, and
// Ctrl-C, stop the work; they are raised when it has cleaned up.
template <typename Work>
auto watched(const nb::object& callback, Work&& work) {
  std::exception_ptr raised;
  const OnProgress on_progress = [&](const Progress& progress) {
    const nb::gil_scoped_acquire held;
    try {
      // Only the main thread sees signals; it is one of those that work.
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!callback.is_none())
        callback(progress.bytes_done, progress.bytes_total, progress.seconds,
                 std::string(progress.current));
      return true;
    } catch (...) {
      raised = std::current_exception();
      return false;
    }
  };
  try {
    const nb::gil_scoped_release released;
    return work(on_progress);
  } catch (const Error&) {
    if (raised) std::rethrow_exception(raised);
    throw;
  }
}

CheckpointReport quantize(const std::string& source, const std::string& out,
                          const std::string& recipe, const std::string& target,
                          const std::string& format, const std::string& scale_rule,
                          const std::string& arith, const std::string& scale_policy,
                          const std::string& scale_format, const std::vector<std::string>& include,
                          const std::vector<std::string>& exclude,
                          const std::vector<std::pair<std::string, std::string>>& recipe_for,
                          bool share, bool bf16_scales, bool clamp_non_finite,
                          std::uint64_t shard_bytes, int threads, std::uint64_t max_memory,
                          bool resume, const nb::object& progress) {
  QuantizeCheckpointOptions options{.threads = threads, .max_memory = max_memory, .resume = resume};
  options.plan = {.recipe = recipe,
                  .target = parse_dialect(target),
                  .format = format,
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
                  .shard_bytes = shard_bytes};
  return watched(progress, [&](const OnProgress& on_progress) {
    options.on_progress = on_progress;
    return quantize_checkpoint(source, out, options);
  });
}

nb::dict convert_dict(const ConvertResult& result) {
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
                 bool clamp_non_finite, const nb::object& progress) {
  const auto target = to.empty() ? Dialect::octavo : parse_dialect(to);
  const DType wanted = dtype == "bfloat16"  ? DType::bf16
                       : dtype == "float16" ? DType::f16
                                            : DType::f32;
  return convert_dict(watched(progress, [&](const OnProgress& on_progress) {
    const ConvertOptions options{.threads = threads,
                                 .max_memory = max_memory,
                                 .resume = resume,
                                 .clamp_non_finite = clamp_non_finite,
                                 .on_progress = on_progress};
    return to.empty() ? dequantize_checkpoint(source, out, wanted, options)
                      : convert_checkpoint(source, out, target, options);
  }));
}

using FindingTuple = std::tuple<std::string, std::string, std::string, std::string, std::string>;

std::vector<FindingTuple> verify_all(const std::string& path,
                                     const std::vector<std::string>& loaders, int tensor_parallel,
                                     bool codes) {
  const nb::gil_scoped_release released;
  VerifyOptions options{.tensor_parallel = tensor_parallel, .codes = codes};
  if (!loaders.empty()) options.loaders.clear();
  for (const std::string& name : loaders) options.loaders.push_back(parse_loader(name));
  std::vector<FindingTuple> out;
  for (const Finding& finding : verify(CheckpointReader(path), options))
    out.emplace_back(finding.severity == Severity::error ? "error" : "warning", finding.loader,
                     finding.rule, finding.tensor, finding.message);
  return out;
}

// (name, shape, type or scaling, bytes, tensors of the file) of each weight and plain tensor.
using InspectedTuple = std::tuple<std::string, std::vector<std::int64_t>, std::string,
                                  std::uint64_t, std::vector<std::string>>;

std::pair<std::optional<std::string>, std::vector<InspectedTuple>> inspect(
    const std::string& path) {
  const nb::gil_scoped_release released;
  const CheckpointReader checkpoint(path);
  const Recognized recognized = recognize(checkpoint);
  std::vector<InspectedTuple> out;
  std::set<std::string, std::less<>> parts;
  for (const FoundWeight& found : recognized.weights) {
    const auto sizes = found.weight.shape.sizes();
    std::uint64_t bytes = 0;
    std::vector<std::string> names;
    for (const SpelledTensor& part : found.tensors) {
      names.push_back(part.plan.name);
      parts.insert(part.plan.name);
      if (const StoredTensor* stored = checkpoint.find(part.plan.name); stored != nullptr)
        bytes += stored->nbytes();
    }
    out.emplace_back(found.weight.name, std::vector<std::int64_t>(sizes.begin(), sizes.end()),
                     describe(found.weight.scaling), bytes, std::move(names));
  }
  for (const StoredTensor& stored : checkpoint.tensors()) {
    if (parts.contains(stored.name())) continue;
    const auto& shape = stored.entry->shape;
    out.emplace_back(stored.name(), std::vector<std::int64_t>(shape.begin(), shape.end()),
                     std::string(safetensors::stored_name(stored.entry->type)), stored.nbytes(),
                     std::vector<std::string>{});
  }
  std::optional<std::string> dialect;
  if (recognized.quantized) dialect = std::string(name_of(recognized.dialect));
  return {dialect, std::move(out)};
}

}  // namespace

void bind_pipeline(nb::module_& module) {
  nb::class_<CheckpointReport>(module, "CheckpointReport")
      .def("json", [](const CheckpointReport& report) { return json_of(report).dump(); })
      .def("html", [](const CheckpointReport& report) { return html_of(report); });
  module.def("quantize_checkpoint", &quantize, nb::arg("source"), nb::arg("out"), nb::kw_only(),
             nb::arg("recipe"), nb::arg("target"), nb::arg("format"), nb::arg("scale_rule"),
             nb::arg("arith"), nb::arg("scale_policy"), nb::arg("scale_format"), nb::arg("include"),
             nb::arg("exclude"), nb::arg("recipe_for"), nb::arg("share"), nb::arg("bf16_scales"),
             nb::arg("clamp_non_finite"), nb::arg("shard_bytes"), nb::arg("threads"),
             nb::arg("max_memory"), nb::arg("resume"), nb::arg("progress").none());
  module.def("convert_checkpoint", &convert, nb::arg("source"), nb::arg("out"), nb::kw_only(),
             nb::arg("to"), nb::arg("dtype"), nb::arg("threads"), nb::arg("max_memory"),
             nb::arg("resume"), nb::arg("clamp_non_finite"), nb::arg("progress").none());
  module.def(
      "compare_checkpoints",
      [](const std::string& a, const std::string& b, int threads, const nb::object& progress) {
        return watched(progress, [&](const OnProgress& on_progress) {
          return compare_checkpoints(a, b, {.threads = threads, .on_progress = on_progress});
        });
      },
      nb::arg("a"), nb::arg("b"), nb::kw_only(), nb::arg("threads"), nb::arg("progress").none());
  module.def("verify_checkpoint", &verify_all, nb::arg("path"), nb::kw_only(), nb::arg("loaders"),
             nb::arg("tensor_parallel"), nb::arg("codes"));
  module.def("inspect_checkpoint", &inspect, nb::arg("path"));
  module.def("dialect_names", &dialect_names);
  module.def("loader_names", &loader_names);
}

}  // namespace octavo::python
