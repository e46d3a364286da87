// From a recipe and a role to a quantizer.
#include "octavo/base/error.h"
#include "octavo/recipe/quantizer_set.h"

namespace octavo {
namespace {

using Made = std::shared_ptr<Quantizer>;

Made make(const DelayedScaling& /*recipe*/, const Format& /*format*/, const QuantizerRole& role) {
  fail(ErrorCode::invalid_argument, "DelayedScaling", "the quantizer of ", name_of(role.tensor),
       " has state; expected memory for it; make a QuantizerSet");
}

Made make(const Float8CurrentScaling& recipe, const Format& format, const QuantizerRole& role) {
  const QParams params = quant_params(recipe, role.tensor);
  return std::make_shared<Float8CurrentScalingQuantizer>(Float8CurrentScalingOptions{
      .format = format, .power_of_two = params.power_2_scale, .min_amax = params.amax_epsilon});
}

Made make(const Float8BlockScaling& recipe, const Format& format, const QuantizerRole& role) {
  const QParams params = quant_params(recipe, role.tensor);
  const int dims = is_gradient(role.tensor)            ? recipe.grad_block_scaling_dim
                   : role.tensor == TensorRole::weight ? recipe.w_block_scaling_dim
                                                       : recipe.x_block_scaling_dim;
  return std::make_shared<Float8BlockQuantizer>(
      Float8BlockOptions{.format = format,
                         .power_of_two = params.power_2_scale,
                         .min_amax = params.amax_epsilon,
                         .block_dims = dims});
}

Made make(const MXFP8BlockScaling& recipe, const Format& format, const QuantizerRole& role) {
  const bool tiles = recipe.enable_2d_quantization && role.tensor == TensorRole::weight;
  return std::make_shared<MXFP8Quantizer>(MXFP8Options{.format = format, .two_dimensional = tiles});
}

Made make(const NVFP4BlockScaling& recipe, const Format& /*format*/, const QuantizerRole& role) {
  const QParams params = quant_params(recipe, role.tensor);
  return std::make_shared<NVFP4Quantizer>(
      NVFP4Options{.with_rht = params.random_hadamard_transform,
                   .two_dimensional = params.fp4_2d_quantization,
                   .stochastic_rounding = params.stochastic_rounding});
}

Made make(const CustomRecipe& recipe, const Format& /*format*/, const QuantizerRole& role) {
  Made made = (*recipe.qfactory)(role);
  check(made != nullptr, ErrorCode::invalid_argument, "CustomRecipe",
        "qfactory gave no quantizer for ", role.module_type, "'s ", name_of(role.tensor),
        "; expected one for each role");
  return made;
}

}  // namespace

std::string_view name_of(Direction direction) {
  return direction == Direction::forward ? "scaling_fwd" : "scaling_bwd";
}

std::shared_ptr<Quantizer> make_quantizer(const Recipe& recipe, const QuantizerRole& role) {
  return std::visit(
      [&](const auto& fields) { return make(fields, recipe.format_of(role.tensor), role); },
      recipe.any());
}

}  // namespace octavo
