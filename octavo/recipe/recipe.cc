#include "octavo/recipe/recipe.h"

#include <array>

namespace octavo {
namespace {

template <typename Struct>
QParams chosen(const Struct& recipe, TensorRole role, const QParams& otherwise) {
  const std::optional<QParams>& given = is_gradient(role)            ? recipe.fp8_quant_bwd_grad
                                        : role == TensorRole::weight ? recipe.fp8_quant_fwd_weight
                                                                     : recipe.fp8_quant_fwd_inp;
  return given.value_or(otherwise);
}

}  // namespace

Format forward_format(RecipeFormat format) {
  if (format == RecipeFormat::E2M1) return e2m1fn;
  return format == RecipeFormat::E5M2 ? e5m2 : e4m3fn;
}

Format backward_format(RecipeFormat format) {
  return format == RecipeFormat::HYBRID ? e5m2 : forward_format(format);
}

std::string_view name_of(RecipeFormat format) {
  constexpr std::array<std::string_view, 4> kNames{"E4M3", "E5M2", "HYBRID", "E2M1"};
  return kNames.at(static_cast<std::size_t>(format));
}

std::string_view name_of(BackwardOverride override) {
  constexpr std::array<std::string_view, 3> kNames{"none", "high_precision", "dequantized"};
  return kNames.at(static_cast<std::size_t>(override));
}

std::string_view name_of(TensorRole role) {
  constexpr std::array<std::string_view, 9> kNames{
      "input", "weight", "output", "grad_output", "grad_input", "query", "key", "value", "softmax"};
  return kNames.at(static_cast<std::size_t>(role));
}

std::string_view Recipe::name() const {
  constexpr std::array<std::string_view, std::variant_size_v<AnyRecipe>> kNames{
      "DelayedScaling",    "Float8CurrentScaling", "Float8BlockScaling",
      "MXFP8BlockScaling", "NVFP4BlockScaling",    "CustomRecipe"};
  return kNames.at(any_.index());
}

RecipeFormat Recipe::format() const {
  if (const auto* fp4 = get<NVFP4BlockScaling>()) return fp4->fp4_format;
  return std::visit([](const auto& recipe) { return recipe.fp8_format; }, any_);
}

Format Recipe::format_of(TensorRole role) const {
  return is_gradient(role) ? backward_format(format()) : forward_format(format());
}

BackwardOverride Recipe::backward_override() const {
  return std::visit([](const auto& recipe) { return recipe.backward_override; }, any_);
}

bool Recipe::use_split_accumulator(LayerProduct product) const {
  const auto chosen_by = [&](const auto* recipe) {
    const MMParams& params = product == LayerProduct::fprop   ? recipe->fp8_gemm_fprop
                             : product == LayerProduct::dgrad ? recipe->fp8_gemm_dgrad
                                                              : recipe->fp8_gemm_wgrad;
    return params.use_split_accumulator;
  };
  if (const auto* current = get<Float8CurrentScaling>()) return chosen_by(current);
  if (const auto* block = get<Float8BlockScaling>()) return chosen_by(block);
  return product != LayerProduct::fprop;
}

Accumulator Recipe::accumulator() const {
  return std::visit([](const auto& recipe) { return recipe.accumulator; }, any_);
}

bool Recipe::fp8_dpa() const {
  return std::visit([](const auto& recipe) { return recipe.fp8_dpa; }, any_);
}

bool Recipe::fp8_mha() const {
  return std::visit([](const auto& recipe) { return recipe.fp8_mha; }, any_);
}

Recipe default_recipe() { return MXFP8BlockScaling{}; }

QParams quant_params(const Float8CurrentScaling& recipe, TensorRole role) {
  return chosen(recipe, role, {.power_2_scale = recipe.use_power_2_scales});
}

QParams quant_params(const Float8BlockScaling& recipe, TensorRole role) {
  return chosen(recipe, role, {.power_2_scale = !recipe.use_f32_scales});
}

QParams quant_params(const NVFP4BlockScaling& recipe, TensorRole role) {
  if (role == TensorRole::weight) return {.fp4_2d_quantization = !recipe.disable_2d_quantization};
  return {.random_hadamard_transform = !recipe.disable_rht,
          .stochastic_rounding = is_gradient(role) && !recipe.disable_stochastic_rounding};
}

}  // namespace octavo
