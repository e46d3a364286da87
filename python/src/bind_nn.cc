// Linear for Python layers: one forward and one backward on the caller's arrays, and the quantizers
// of a module, with their state in the caller's memory.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "bind.h"
#include "nn_run.h"
#include "octavo/base/error.h"
#include "octavo/nn/linear/attention_pass.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/nn/linear/quantized_weight.h"
#include "octavo/ops/gemm.h"
#include "octavo/recipe/module_quantizers.h"

namespace octavo::python {
namespace {

void make_quantizers(ModuleQuantizers* self, const std::string& module_type,
                     const std::string& name, nb::object allocate, nb::object warn, int cuda,
                     std::uint64_t seed, bool attends) {
  ModuleQuantizersOptions options = attends ? attention_quantizers() : ModuleQuantizersOptions{};
  options.module_type = module_type;
  options.name = name;
  options.make = maker(std::move(allocate), cuda);
  options.warn = [warn = Callback(std::move(warn))](std::string_view message) {
    const nb::gil_scoped_acquire held;
    warn(std::string(message));
  };
  options.seed = seed;
  new (self) ModuleQuantizers(std::move(options));
}

// Its destruction may end a step, which waits for calls of other threads; those may wait for the
// GIL. Whether this thread holds it cannot be asked under the stable ABI, so that it is acquired,
// which a thread that has it may do, and then released.
void let_go(LinearSaved* saved) {
  if (Py_IsInitialized() == 0) {
    delete saved;
    return;
  }
  const nb::gil_scoped_acquire held;
  const nb::gil_scoped_release released;
  delete saved;
}

using Weight = std::variant<SharedTensor*, std::shared_ptr<QuantizedTensor>>;

std::pair<SharedTensor, std::shared_ptr<LinearSaved>> forward(
    const SharedTensor& x, const Weight& weight, const Recipe* made_with, const SharedTensor* bias,
    const std::tuple<bool, bool, bool>& needs, bool training,
    std::optional<bool> is_first_microbatch, ModuleQuantizers& quantizers, WeightCache& cache,
    std::string_view accumulator, ForwardScales* scales, nb::object allocate,
    std::uintptr_t stream) {
  LinearCall call{.x = x.tensor};
  if (const auto* codes = std::get_if<std::shared_ptr<QuantizedTensor>>(&weight)) {
    call.weight.codes = *codes;
    if (made_with != nullptr) call.weight.made_with = std::make_shared<const Recipe>(*made_with);
  } else {
    call.weight.values = std::get<SharedTensor*>(weight)->tensor;
  }
  if (bias != nullptr) call.bias = bias->tensor;
  std::tie(call.needs.dx, call.needs.dw, call.needs.db) = needs;
  call.training = training;
  call.is_first_microbatch = is_first_microbatch;
  call.quantizers = &quantizers;
  call.cache = &cache;
  call.scales = scales;
  call.run = run_of(std::move(allocate), cuda_index(x.tensor.view().device), stream);
  call.run.accumulator = parse_accumulator(accumulator);
  std::shared_ptr<LinearSaved> saved(new LinearSaved, &let_go);
  const nb::gil_scoped_release released;
  const Tensor y = linear_forward(call, saved.get());
  return {share(y), std::move(saved)};
}

using Gradient = std::optional<SharedTensor>;

std::tuple<Gradient, Gradient, Gradient> backward(const SharedTensor& dy,
                                                  const LinearSaved& saved) {
  const nb::gil_scoped_release released;
  const LinearGradients found = linear_backward(dy.tensor, saved);
  return {share_if_there(found.dx), share_if_there(found.dw), share_if_there(found.db)};
}

std::vector<std::pair<std::string, SharedTensor>> take_parts(LinearSaved& saved) {
  std::vector<std::pair<std::string, SharedTensor>> parts;
  for (const LinearSaved::Part& part : saved.take_parts())
    parts.emplace_back(part.name, share(part.tensor));
  return parts;
}

// A part's address, strides in bytes, and owner.
using Place = std::tuple<std::uintptr_t, std::vector<std::int64_t>, nb::object>;

std::shared_ptr<LinearSaved> with_parts(const LinearSaved& saved,
                                        const std::vector<Place>& places) {
  std::vector<Tensor> parts;
  for (const auto& layout : saved.taken) {
    if (!layout || parts.size() == places.size()) continue;
    const auto& [address, strides, owner] = places[parts.size()];
    View view = *layout;
    view.data = reinterpret_cast<void*>(address);
    if (is_value(view.dtype)) view.strides = Shape(std::span<const std::int64_t>(strides));
    parts.push_back(Tensor::adopt(view, kept_alive(owner)));
  }
  check(parts.size() == places.size(), ErrorCode::invalid_argument, "Linear", "got ", places.size(),
        " parts of what forward kept; expected ", parts.size());
  return {new LinearSaved(saved.with_parts(parts)), &let_go};
}

void bind_sets(nb::module_& module) {
  nb::class_<QuantizerSet>(module, "QuantizerSet", "The quantizers of a module and a direction.")
      .def("__len__", &QuantizerSet::size)
      .def(
          "at",
          [](const QuantizerSet& self, std::size_t slot) -> Quantizer& {
            if (slot >= self.size()) throw nb::index_error();
            return self.at(slot);
          },
          nb::arg("slot"), nb::rv_policy::reference_internal)
      .def_prop_ro(
          "amax_history",
          [](const QuantizerSet& self) { return share_if_there(self.amax_history()); },
          "[length, slots]; None without state.")
      .def_prop_ro(
          "last_amax", [](const QuantizerSet& self) { return share_if_there(self.last_amax()); },
          "[slots]: the last amax of each tensor.")
      .def_prop_ro(
          "calls", [](const QuantizerSet& self) { return share_if_there(self.calls()); },
          "[1]: steps since the last new scale; None where each step makes one.")
      .def_prop_ro(
          "inv_scale", [](const QuantizerSet& self) { return share_if_there(self.inv_scale()); },
          "[slots]: what values are multiplied by.")
      .def(
          "restore",
          [](QuantizerSet& self, const std::optional<View>& history,
             const std::optional<View>& inv_scale, const std::optional<View>& calls,
             std::uintptr_t stream) {
            const nb::gil_scoped_release released;  // it may wait for the end of a step
            self.restore(history.value_or(View{}), inv_scale.value_or(View{}), stream_of(stream),
                         calls.value_or(View{}));
          },
          nb::arg("amax_history").none(), nb::arg("inv_scale").none(),
          nb::arg("calls").none() = nb::none(), nb::arg("stream") = 0,
          "State that was saved; what is None stays.");

  nb::class_<ModuleQuantizers>(module, "ModuleQuantizers", "What a module keeps of recipes.")
      .def("__init__", &make_quantizers, nb::arg("module_type"), nb::arg("name"),
           nb::arg("allocate").none(), nb::arg("warn"), nb::arg("cuda") = -1, nb::arg("seed") = 0,
           nb::arg("attends") = false,
           "attends: with slots for the tensors of attention. allocate(bytes), if given, makes "
           "memory for state and returns (address, owner).")
      .def(
          "use",
          [](ModuleQuantizers& self, const Recipe& recipe, std::uintptr_t stream) {
            const nb::gil_scoped_release released;  // it may wait for the module's lock
            return self.use(recipe, {}, false, stream_of(stream));
          },
          nb::arg("recipe"), nb::arg("stream") = 0,
          "Quantizers for a recipe; True where they are new. stream: on which state is made.")
      .def(
          "at",
          [](const ModuleQuantizers& self, std::string_view key) {
            const auto set = self.at(key);
            return set ? std::optional(set) : std::nullopt;
          },
          nb::arg("key"), "By scaling_fwd or scaling_bwd; None before the first recipe.")
      .def(
          "first_weight",
          [](ModuleQuantizers& self, const Recipe& recipe, const View& values,
             std::uintptr_t stream, nb::object allocate) {
            const LinearRun run = run_of(std::move(allocate), cuda_index(values.device), stream);
            const nb::gil_scoped_release released;
            return *first_quantized_weight(self, recipe, values, run);
          },
          nb::arg("recipe"), nb::arg("values"), nb::arg("stream") = 0,
          nb::arg("allocate").none() = nb::none(), "The codes of a weight's first values.")
      .def(
          "switched_weight",
          [](ModuleQuantizers& self, const Recipe& recipe, const QuantizedTensor& codes,
             std::string_view dtype, std::uintptr_t stream, nb::object allocate) {
            const LinearRun run = run_of(std::move(allocate), cuda_index(codes.device()), stream);
            const nb::gil_scoped_release released;
            return *switched_weight(self, recipe, codes, parse_dtype(dtype), run);
          },
          nb::arg("recipe"), nb::arg("codes"), nb::arg("dtype"), nb::arg("stream") = 0,
          nb::arg("allocate").none() = nb::none(), "The codes of a weight for another recipe.")
      .def("warn_unused_state", &ModuleQuantizers::warn_unused_state, nb::arg("recipe"),
           nb::call_guard<nb::gil_scoped_release>(),
           "State of delayed scaling was loaded, and this recipe has none.")
      .def(
          "next_weight",
          [](const ModuleQuantizers& self, const View& values, std::uintptr_t stream,
             nb::object allocate) {
            const LinearRun run = run_of(std::move(allocate), cuda_index(values.device), stream);
            const nb::gil_scoped_release released;
            return *requantized_weight(self, values, run);
          },
          nb::arg("values"), nb::arg("stream") = 0, nb::arg("allocate").none() = nb::none(),
          "The codes of its later ones.");
}

}  // namespace

void bind_nn(nb::module_& module) {
  bind_sets(module);
  nb::class_<ForwardScales>(module, "ForwardScales",
                            "What a forward under delayed scaling multiplied by: it fills them in, "
                            "or uses them where they are.")
      .def(nb::init<>())
      .def_rw("again", &ForwardScales::again, "The forward is done again, and notes no amax.");
  nb::class_<WeightCache>(module, "WeightCache", "A weight's codes between micro-batches.")
      .def(nb::init<>());
  nb::class_<LinearSaved>(module, "LinearSaved", "What a backward of Linear needs.")
      .def_prop_ro("x_nbytes", &LinearSaved::x_nbytes, "Of x, as it is kept.")
      .def("take_parts", &take_parts, "All memory that backward reads, by name; it has none then.")
      .def("with_parts", &with_parts, nb::arg("places"),
           "With that memory, by address, strides in bytes and owner, in the order of take_parts.");
  module.def("linear_forward", &forward, nb::arg("x"), nb::arg("weight"),
             nb::arg("made_with").none(), nb::arg("bias").none(), nb::kw_only(), nb::arg("needs"),
             nb::arg("training"), nb::arg("is_first_microbatch").none(), nb::arg("quantizers"),
             nb::arg("cache"), nb::arg("accumulator") = "native",
             nb::arg("scales").none() = nb::none(), nb::arg("allocate").none() = nb::none(),
             nb::arg("stream") = 0,
             "y = x w^T + bias in the autocast scope of this thread. made_with: the recipe of a "
             "weight that is codes. needs: which of dx, dw and db backward is asked for. training: "
             "delayed scaling records amaxes and is updated. accumulator: of products of "
             "codes. scales: of a forward that may be recomputed.");
  module.def("linear_backward", &backward, nb::arg("dy"), nb::arg("saved"), "(dx, dw, db).");
  bind_attention_pass(module);
}

}  // namespace octavo::python
