// Evaluation and calibration of models that run.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bind.h"
#include "octavo/model/eval/calibrate.h"
#include "octavo/model/eval/evaluate.h"
#include "octavo/model/statistics/statistics_file.h"
#include "watched.h"

namespace octavo::python {
namespace {

using Contents = std::vector<std::pair<std::string, std::string>>;
using Ids = std::vector<std::pair<std::string, std::vector<std::int32_t>>>;

std::vector<EvalText> texts_of(const std::string& op, const std::vector<std::string>& files,
                               const Contents& contents, const Ids& ids) {
  std::vector<EvalText> out;
  for (const std::string& path : files) out.push_back(read_text_file(op, path));
  for (const auto& [name, content] : contents) out.push_back({.name = name, .content = content});
  for (const auto& [name, numbers] : ids) out.push_back({.name = name, .ids = numbers});
  return out;
}

ModelEvaluation run_evaluate(const std::vector<std::string>& models, const std::string& against,
                             const std::vector<std::string>& files, const Contents& contents,
                             const Ids& ids, std::int64_t window, std::int64_t tokens,
                             const std::string& activations, std::uint64_t max_memory,
                             const std::string& temporary, const std::string& resume, int threads,
                             const nb::object& progress) {
  EvaluateOptions options{.against = against,
                          .texts = texts_of("evaluate", files, contents, ids),
                          .window = window,
                          .tokens = tokens,
                          .activations = parse_dtype(activations),
                          .max_memory = max_memory,
                          .temporary = temporary,
                          .resume = resume,
                          .threads = threads};
  return watched(progress, [&](const OnProgress& on_progress) {
    options.on_progress = on_progress;
    return evaluate(models, options);
  });
}

ModelStatistics run_calibrate(const std::string& model, const std::string& out,
                              const std::vector<std::string>& files, const Contents& contents,
                              const Ids& ids, std::int64_t window, std::int64_t tokens,
                              bool block_hessians, const std::string& full_hessians,
                              std::uint64_t max_memory, const std::string& temporary,
                              const std::string& resume, int threads, const nb::object& progress) {
  CalibrateOptions options{.texts = texts_of("calibrate", files, contents, ids),
                           .window = window,
                           .tokens = tokens,
                           .block_hessians = block_hessians,
                           .full_hessians = full_hessians,
                           .max_memory = max_memory,
                           .temporary = temporary,
                           .resume = resume,
                           .keep_state = true,
                           .threads = threads};
  ModelStatistics seen = watched(progress, [&](const OnProgress& on_progress) {
    options.on_progress = on_progress;
    return calibrate(model, options);
  });
  if (!out.empty()) write_statistics(out, seen);
  if (!resume.empty()) remove_calibration_state(resume);
  return seen;
}

}  // namespace

void bind_eval(nb::module_& module) {
  nb::class_<ModelEvaluation>(module, "ModelEvaluation")
      .def("json", [](const ModelEvaluation& evaluation) { return json_of(evaluation); })
      .def("html", [](const ModelEvaluation& evaluation) { return html_of(evaluation); });
  module.def("evaluate", &run_evaluate, nb::arg("models"), nb::kw_only(), nb::arg("against"),
             nb::arg("files"), nb::arg("contents"), nb::arg("ids"), nb::arg("window"),
             nb::arg("tokens"), nb::arg("activations"), nb::arg("max_memory"), nb::arg("temporary"),
             nb::arg("resume"), nb::arg("threads"), nb::arg("progress").none());
  nb::class_<ModelStatistics>(module, "ModelStatistics")
      .def_prop_ro("tokens", [](const ModelStatistics& seen) { return seen.origin.tokens; })
      .def_prop_ro("notes", [](const ModelStatistics& seen) { return seen.notes; })
      .def_prop_ro("modules", [](const ModelStatistics& seen) {
        std::vector<std::string> names;
        for (const ModuleStatistics& one : seen.modules) names.push_back(one.module);
        return names;
      });
  module.def("calibrate", &run_calibrate, nb::arg("model"), nb::kw_only(), nb::arg("out"),
             nb::arg("files"), nb::arg("contents"), nb::arg("ids"), nb::arg("window"),
             nb::arg("tokens"), nb::arg("block_hessians"), nb::arg("full_hessians"),
             nb::arg("max_memory"), nb::arg("temporary"), nb::arg("resume"), nb::arg("threads"),
             nb::arg("progress").none());
}

}  // namespace octavo::python
