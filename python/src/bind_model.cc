// Models that run.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bind.h"
#include "octavo/model/generate.h"

namespace octavo::python {
namespace {

using Ids = std::vector<std::int32_t>;

KvCacheOptions cache_of(const std::optional<std::string>& type) {
  if (!type) return {};
  return {.values = parse_dtype(*type)};
}

std::tuple<Ids, bool, double, double> generated(const Decoder& model, const Ids& prompt,
                                                std::int64_t max_tokens, double temperature,
                                                std::int64_t top_k, double top_p,
                                                std::uint64_t seed, bool stop_at_eos,
                                                const std::optional<std::string>& cache,
                                                int threads,
                                                const std::optional<nb::callable>& on_token) {
  GenerateOptions options{
      .max_tokens = max_tokens,
      .sampling = {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed},
      .stop_at_eos = stop_at_eos,
      .cache = cache_of(cache)};
  options.run.threads = threads;
  // Ctrl-C ends the text here, between tokens.
  options.on_token = [&](std::int32_t id) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!on_token) return true;
    const nb::object result = (*on_token)(id);
    return result.ptr() != Py_False;
  };
  const nb::gil_scoped_release release;
  GenerateResult result = generate(model, prompt, options);
  return {std::move(result.ids), result.at_eos, result.prompt_seconds, result.seconds};
}

}  // namespace

void bind_model(nb::module_& module) {
  nb::class_<Decoder>(module, "Decoder")
      .def(
          "__init__",
          [](Decoder* self, const std::string& path, const std::optional<std::string>& weights,
             const std::string& activations, int threads) {
            ModelFilesOptions options{.activations = parse_dtype(activations), .threads = threads};
            if (weights) options.weights = parse_dtype(*weights);
            const nb::gil_scoped_release release;
            new (self) Decoder(path, options);
          },
          nb::arg("path"), nb::arg("weights").none(), nb::arg("activations"), nb::arg("threads"))
      .def(
          "logits",
          [](const Decoder& self, const Ids& ids, int threads) {
            const nb::gil_scoped_release release;
            return share(self.logits(ids, nullptr, {.threads = threads}));
          },
          nb::arg("ids"), nb::arg("threads"))
      .def("generate", &generated, nb::arg("prompt"), nb::arg("max_tokens"), nb::arg("temperature"),
           nb::arg("top_k"), nb::arg("top_p"), nb::arg("seed"), nb::arg("stop_at_eos"),
           nb::arg("cache").none(), nb::arg("threads"), nb::arg("on_token").none())
      .def("tokenizer", [](const Decoder& self) { return self.files().load_tokenizer(); })
      .def(
          "text_file",
          [](const Decoder& self, const std::string& name) { return self.files().text_file(name); },
          nb::arg("name"))
      .def_prop_ro("path", [](const Decoder& self) { return self.files().path(); })
      .def_prop_ro("nbytes", &Decoder::nbytes)
      .def_prop_ro("fingerprint", [](const Decoder& self) { return self.files().fingerprint(); })
      .def_prop_ro("config", [](const Decoder& self) {
        const ModelConfig& config = self.config();
        nb::dict out;
        out["family"] = config.family;
        out["vocabulary"] = config.vocabulary;
        out["hidden"] = config.hidden;
        out["layers"] = config.layers;
        out["heads"] = config.heads;
        out["kv_heads"] = config.kv_heads;
        out["head_size"] = config.head_size;
        out["intermediate"] = config.intermediate;
        out["experts"] = config.experts.count;
        out["experts_per_token"] = config.experts.top_k;
        out["max_positions"] = config.max_positions;
        out["tied_head"] = config.tied_head;
        out["eos"] = config.eos;
        out["bos"] = config.bos;
        return out;
      });
}

}  // namespace octavo::python
