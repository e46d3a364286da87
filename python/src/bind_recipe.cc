// Recipes and their scopes (autocast, quantized_model_init). The Python classes hold the fields;
// here they become the library's recipes, which checks and prints them.
#include "octavo/recipe/recipe.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/recipe/autocast.h"

namespace octavo::python {
namespace {

RecipeFormat parse_format(std::string_view name) {
  for (const RecipeFormat format :
       {RecipeFormat::E4M3, RecipeFormat::E5M2, RecipeFormat::HYBRID, RecipeFormat::E2M1})
    if (name == name_of(format)) return format;
  fail(ErrorCode::invalid_argument, "recipe", "got format \"", shown(name),
       "\"; expected E4M3, E5M2, HYBRID or E2M1");
}

BackwardOverride parse_override(const std::optional<std::string>& name) {
  if (!name) return BackwardOverride::none;
  for (const BackwardOverride choice :
       {BackwardOverride::high_precision, BackwardOverride::dequantized})
    if (*name == name_of(choice)) return choice;
  fail(ErrorCode::invalid_argument, "recipe", "got backward_override \"", shown(*name),
       "\"; expected None, \"high_precision\" or \"dequantized\"");
}

// The fields of the Python class of that name, and what they are called in an error.
class Fields {
 public:
  explicit Fields(nb::dict fields) : fields_(std::move(fields)) {}

  template <typename T>
  [[nodiscard]] T get(const char* name) const {
    try {
      return nb::cast<T>(fields_[name]);
    } catch (const nb::cast_error&) {
      const auto shown_value = nb::cast<std::string>(nb::repr(fields_[name]));
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        check(!nb::isinstance<nb::int_>(fields_[name]), ErrorCode::invalid_argument, "recipe",
              "got ", name, " = ", shown(shown_value), ", which is far beyond what it may be");
      fail(ErrorCode::wrong_type, "recipe", "got ", name, " = ", shown(shown_value),
           ", which is not of the type of its default");
    }
  }
  [[nodiscard]] bool is_none(const char* name) const { return fields_[name].is_none(); }
  [[nodiscard]] RecipeFormat format(const char* name) const {
    return parse_format(get<std::string>(name));
  }
  [[nodiscard]] std::optional<QParams> quant(const char* name) const {
    if (is_none(name)) return std::nullopt;
    const auto [power_2, epsilon, hadamard, stochastic, tiles] =
        get<std::tuple<bool, float, bool, bool, bool>>(name);
    return QParams{power_2, epsilon, hadamard, stochastic, tiles};
  }
  [[nodiscard]] MMParams gemm(const char* name) const { return {get<bool>(name)}; }
  template <typename Function>
  [[nodiscard]] std::shared_ptr<const Function> function(const char* name) const {
    return is_none(name) ? nullptr : std::make_shared<const Function>(get<Function>(name));
  }

  template <typename Struct>
  Struct common(Struct recipe) const {
    recipe.fp8_dpa = get<bool>("fp8_dpa");
    recipe.fp8_mha = get<bool>("fp8_mha");
    recipe.fp8_format = format("fp8_format");
    recipe.backward_override = parse_override(get<std::optional<std::string>>("backward_override"));
    recipe.accumulator = parse_accumulator(get<std::string>("accumulator"), "recipe");
    return recipe;
  }
  template <typename Struct>
  Struct params(Struct recipe) const {
    recipe.fp8_quant_fwd_inp = quant("fp8_quant_fwd_inp");
    recipe.fp8_quant_fwd_weight = quant("fp8_quant_fwd_weight");
    recipe.fp8_quant_bwd_grad = quant("fp8_quant_bwd_grad");
    recipe.fp8_gemm_fprop = gemm("fp8_gemm_fprop");
    recipe.fp8_gemm_dgrad = gemm("fp8_gemm_dgrad");
    recipe.fp8_gemm_wgrad = gemm("fp8_gemm_wgrad");
    return recipe;
  }

 private:
  nb::dict fields_;
};

Recipe delayed(const Fields& fields) {
  auto recipe = fields.common(DelayedScaling{});
  recipe.margin = fields.get<int>("margin");
  recipe.amax_history_len = fields.get<std::int64_t>("amax_history_len");
  recipe.amax_ema_decay = fields.get<float>("amax_ema_decay");
  recipe.interval = fields.get<std::int64_t>("interval");
  recipe.reduce_amax = fields.get<bool>("reduce_amax");
  recipe.amax_compute_algo = parse_history_policy(fields.get<std::string>("amax_compute_algo"));
  using OnList = std::function<float(std::vector<float>)>;
  if (!fields.is_none("amax_compute_function"))
    recipe.amax_compute_function = std::make_shared<const AmaxAlgorithm>(
        [own = fields.get<OnList>("amax_compute_function")](std::span<const float> window) {
          return own({window.begin(), window.end()});
        });
  recipe.scaling_factor_compute_algo =
      fields.function<ScaleAlgorithm>("scaling_factor_compute_algo");
  return recipe;
}

Recipe current(const Fields& fields) {
  auto recipe = fields.params(fields.common(Float8CurrentScaling{}));
  recipe.use_power_2_scales = fields.get<bool>("use_power_2_scales");
  return recipe;
}

Recipe block(const Fields& fields) {
  auto recipe = fields.params(fields.common(Float8BlockScaling{}));
  recipe.use_f32_scales = fields.get<bool>("use_f32_scales");
  recipe.x_block_scaling_dim = fields.get<int>("x_block_scaling_dim");
  recipe.w_block_scaling_dim = fields.get<int>("w_block_scaling_dim");
  recipe.grad_block_scaling_dim = fields.get<int>("grad_block_scaling_dim");
  return recipe;
}

Recipe mxfp8(const Fields& fields) {
  auto recipe = fields.common(MXFP8BlockScaling{});
  recipe.margin = fields.get<int>("margin");
  recipe.enable_2d_quantization = fields.get<bool>("enable_2d_quantization");
  return recipe;
}

Recipe nvfp4(const Fields& fields) {
  auto recipe = fields.common(NVFP4BlockScaling{});
  recipe.disable_rht = fields.get<bool>("disable_rht");
  recipe.disable_stochastic_rounding = fields.get<bool>("disable_stochastic_rounding");
  recipe.disable_2d_quantization = fields.get<bool>("disable_2d_quantization");
  recipe.row_scaled_activation = fields.get<bool>("row_scaled_activation");
  recipe.nvfp4_4over6 = fields.get<std::string>("nvfp4_4over6");
  recipe.nvfp4_4over6_e4m3_use_256 = fields.get<std::string>("nvfp4_4over6_e4m3_use_256");
  recipe.nvfp4_4over6_err_mode = fields.get<std::string>("nvfp4_4over6_err_mode");
  recipe.fp4_format = fields.format("fp4_format");
  return recipe;
}

// A quantizer of octavo.quantizers, which keeps its arrays alive.
std::shared_ptr<Quantizer> from_python(const nb::object& made, const QuantizerRole& role) {
  if (made.is_none()) return nullptr;
  const nb::object handle = nb::getattr(made, "_handle", nb::none());
  if (!nb::isinstance<Quantizer>(handle))
    fail(ErrorCode::wrong_type, "CustomRecipe", "qfactory gave ",
         nb::cast<std::string>(nb::str(made.type().attr("__name__"))), " for ",
         name_of(role.tensor), "; expected a quantizer of octavo.quantizers or octavo.torch");
  return {kept_alive(made), nb::cast<Quantizer*>(handle)};
}

Recipe custom(const Fields& fields) {
  auto recipe = fields.common(CustomRecipe{});
  recipe.quantization_alignment = fields.get<int>("quantization_alignment");
  if (fields.is_none("qfactory")) return recipe;  // which the library refuses
  // Called with the module's type, the tensor's role and the module's name.
  const auto owner = kept_alive(fields.get<nb::object>("qfactory"));
  recipe.qfactory = std::make_shared<const QuantizerFactory>([owner](const QuantizerRole& role) {
    const nb::gil_scoped_acquire held;
    const nb::object made = nb::handle(static_cast<PyObject*>(owner.get()))(
        role.module_type, std::string(name_of(role.tensor)), role.name);
    return from_python(made, role);
  });
  return recipe;
}

Recipe make_recipe(std::string_view name, const nb::dict& values) {
  const Fields fields(values);
  using Make = Recipe (*)(const Fields&);
  constexpr std::pair<std::string_view, Make> kMakes[] = {
      {"DelayedScaling", delayed},   {"Float8CurrentScaling", current},
      {"Float8BlockScaling", block}, {"MXFP8BlockScaling", mxfp8},
      {"NVFP4BlockScaling", nvfp4},  {"CustomRecipe", custom}};
  for (const auto& [known, make] : kMakes)
    if (name == known) return make(fields);
  fail(ErrorCode::invalid_argument, "recipe", "got class ", shown(name),
       ", which is not one of octavo.recipe");
}

template <RecipeStruct Struct>
Recipe example() {
  if constexpr (std::is_same_v<Struct, CustomRecipe>)
    return CustomRecipe{.qfactory = std::make_shared<const QuantizerFactory>(
                            [](const QuantizerRole&) { return nullptr; })};
  else
    return Struct{};
}

template <typename... Structs>
std::optional<Recipe> example_among(std::string_view name, const std::variant<Structs...>*) {
  std::optional<Recipe> found;
  const auto look_at = [&](const Recipe& recipe) {
    if (recipe.name() == name) found = recipe;
  };
  (look_at(example<Structs>()), ...);
  return found;
}

// The predicates (Recipe::mxfp8(), ...) that are true for recipes of a class. They depend on the
// class alone.
std::vector<std::string> predicates(std::string_view name) {
  const std::optional<Recipe> example = example_among(name, static_cast<const AnyRecipe*>(nullptr));
  if (!example) return {};
  const std::pair<const char*, bool> answers[] = {
      {"delayed", example->delayed()},
      {"float8_current_scaling", example->float8_current_scaling()},
      {"float8_per_tensor_scaling", example->float8_per_tensor_scaling()},
      {"float8_block_scaling", example->float8_block_scaling()},
      {"mxfp8", example->mxfp8()},
      {"nvfp4", example->nvfp4()},
      {"custom", example->custom()},
      {"fp8", example->fp8()},
      {"block_scaling", example->block_scaling()}};
  std::vector<std::string> hold;
  for (const auto& [predicate, holds] : answers)
    if (holds) hold.emplace_back(predicate);
  return hold;
}

// A scope that Python enters and leaves. A scope that is never left ends with its object, and its
// errors are dropped: a destructor cannot report them.
template <typename Scope>
class Held {
 public:
  explicit Held(Scope* scope) : scope_(scope) {}
  ~Held() {
    const nb::gil_scoped_release released;  // the end of a scope may wait for other threads
    try {
      delete scope_;
    } catch (...) {
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  [[nodiscard]] Scope& operator*() const { return *scope_; }

 private:
  Scope* scope_;
};
struct AutocastScope : Held<Autocast> {
  using Held::Held;
};
struct ModelInitScope : Held<QuantizedModelInit> {
  using Held::Held;
};

using ReduceList = std::function<std::vector<float>(std::vector<float>)>;
std::shared_ptr<const Reducer> reducer_of(std::optional<ReduceList> reduce) {
  if (!reduce) return nullptr;
  return std::make_shared<const Reducer>([own = *std::move(reduce)](std::span<float> numbers) {
    const std::vector<float> reduced = own({numbers.begin(), numbers.end()});
    check(reduced.size() == numbers.size(), ErrorCode::invalid_argument, "autocast",
          "the amax group made ", reduced.size(), " numbers of ", numbers.size());
    std::ranges::copy(reduced, numbers.begin());
  });
}

}  // namespace

void bind_recipe(nb::module_& module) {
  nb::class_<Recipe>(module, "Recipe", "A recipe, checked.")
      .def(
          "__init__",
          [](Recipe* self, std::string_view name, const nb::dict& fields) {
            new (self) Recipe(make_recipe(name, fields));
          },
          nb::arg("name"), nb::arg("fields"), "The fields of the class of octavo.recipe.")
      .def_prop_ro("name", &Recipe::name, "Of the class.")
      .def_prop_ro("fp8_dpa", &Recipe::fp8_dpa)
      .def_prop_ro("fp8_mha", &Recipe::fp8_mha)
      .def(
          "__eq__", [](const Recipe& self, const Recipe& other) { return self == other; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__str__", [](const Recipe& self) { return to_string(self); });
  module.def("recipe_predicates", &predicates, nb::arg("name"),
             "What recipes of the class of this name are: the predicates that hold.");
  module.def("default_recipe", &default_recipe, "What autocast uses where none is given.");

  nb::class_<AutocastScope>(module, "Autocast", "A scope of this thread; entered when made.")
      .def(
          "__init__",
          [](AutocastScope* self, const Recipe& recipe, bool enabled, bool calibrating,
             std::optional<ReduceList> reduce) {
            AutocastOptions options{.enabled = enabled, .calibrating = calibrating};
            options.amax_group = reducer_of(std::move(reduce));
            // One that another thread has ended goes now, which may wait.
            const nb::gil_scoped_release released;
            new (self) AutocastScope(new Autocast(recipe, std::move(options)));
          },
          nb::arg("recipe"), nb::arg("enabled"), nb::arg("calibrating"), nb::arg("reduce").none(),
          "reduce: from this process's amaxes to those of the group.")
      .def(
          "leave",
          [](const AutocastScope& self, bool failed) {
            const nb::gil_scoped_release released;
            (*self).leave(failed);
          },
          nb::arg("failed"))
      .def(
          "leave_later", [](const AutocastScope& self) { (*self).leave_later(); },
          "Where leave fails: it ends with the scopes inside of it.");
  module.def(
      "current_autocast",
      [] {
        const AutocastState state = [] {
          const nb::gil_scoped_release released;
          return current_autocast();
        }();
        return std::tuple(state.enabled, state.calibrating,
                          state.recipe ? std::optional(*state.recipe) : std::nullopt);
      },
      "(enabled, calibrating, recipe) of this thread.");

  nb::class_<ModelInitScope>(module, "QuantizedModelInit",
                             "A scope of this thread; entered when made.")
      .def(
          "__init__",
          [](ModelInitScope* self, const Recipe& recipe, bool enabled, bool preserve) {
            new (self) ModelInitScope(new QuantizedModelInit(
                recipe, {.enabled = enabled, .preserve_high_precision_init_val = preserve}));
          },
          nb::arg("recipe"), nb::arg("enabled"), nb::arg("preserve_high_precision_init_val"))
      .def("leave", [](const ModelInitScope& self) { (*self).leave(); })
      .def("leave_later", [](const ModelInitScope& self) { (*self).leave_later(); });
  module.def(
      "current_model_init",
      [] {
        const ModelInitState state = current_model_init();
        return std::tuple(state.enabled, state.preserve_high_precision_init_val,
                          state.recipe ? std::optional(*state.recipe) : std::nullopt);
      },
      "(enabled, preserve_high_precision_init_val, recipe) of this thread.");
}

}  // namespace octavo::python
