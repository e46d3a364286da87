// Valid values of a recipe's fields. A field that would have no effect is an error.
#include <cmath>
#include <type_traits>

#include "octavo/base/error.h"
#include "octavo/recipe/recipe.h"

namespace octavo {
namespace {

template <typename... Parts>
void need(bool holds, std::string_view recipe, const Parts&... parts) {
  if (!holds) fail(ErrorCode::invalid_argument, recipe, parts...);
}

template <typename... Parts>
void offered(bool holds, std::string_view recipe, const Parts&... parts) {
  if (!holds) fail(ErrorCode::unsupported, recipe, parts...);
}

void check_fp8(RecipeFormat format, std::string_view recipe) {
  need(format != RecipeFormat::E5M2, recipe,
       "got fp8_format = E5M2: pure E5M2 training is not supported, two bits of mantissa are too "
       "few for weights and activations; use HYBRID or E4M3");
  need(format != RecipeFormat::E2M1, recipe,
       "got fp8_format = E2M1; expected E4M3 or HYBRID; FP4 is NVFP4BlockScaling");
}

void check_params(const std::optional<QParams>& params, std::string_view field,
                  std::string_view recipe) {
  if (!params) return;
  need(!params->random_hadamard_transform && !params->stochastic_rounding &&
           !params->fp4_2d_quantization,
       recipe, field,
       " asks for a Hadamard transform, stochastic rounding or FP4 tiles, which are "
       "NVFP4BlockScaling's; leave them false");
  need(std::isfinite(params->amax_epsilon) && params->amax_epsilon >= 0.0F, recipe, field,
       " has amax_epsilon = ", params->amax_epsilon, "; expected a finite number of at least zero");
}

template <typename Struct>
void check_all_params(const Struct& recipe, std::string_view name) {
  check_params(recipe.fp8_quant_fwd_inp, "fp8_quant_fwd_inp", name);
  check_params(recipe.fp8_quant_fwd_weight, "fp8_quant_fwd_weight", name);
  check_params(recipe.fp8_quant_bwd_grad, "fp8_quant_bwd_grad", name);
}

template <typename Struct>
void check_accumulator(const Struct& recipe, std::string_view name) {
  need(recipe.accumulator != Accumulator::f64, name,
       "got accumulator = float64, which sums values; expected native, float32, float16 or "
       "hopper_fp8");
  need(
      recipe.accumulator != Accumulator::amx_bf16, name,
      "got accumulator = amx_bf16, which is for single products; expected native, float32, float16 "
      "or hopper_fp8");
  need(recipe.accumulator != Accumulator::hopper_fp8 || !std::is_same_v<Struct, NVFP4BlockScaling>,
       name, "got accumulator = hopper_fp8, which multiplies e4m3 and e5m2; leave it native");
}

void check_recipe(const DelayedScaling& recipe, std::string_view name) {
  check_fp8(recipe.fp8_format, name);
  need(std::abs(recipe.margin) <= kMaxMargin, name, "got margin = ", recipe.margin, "; expected -",
       kMaxMargin, " to ", kMaxMargin);
  need(recipe.amax_history_len >= 1 && recipe.amax_history_len <= kMaxHistory, name,
       "got amax_history_len = ", recipe.amax_history_len, "; expected 1 to ", kMaxHistory);
  need(recipe.interval >= 1 && recipe.interval <= kMaxInterval, name,
       "got interval = ", recipe.interval, "; expected 1 to ", kMaxInterval, " steps");
  need(recipe.amax_ema_decay > 0.0F && recipe.amax_ema_decay < 1.0F, name,
       "got amax_ema_decay = ", recipe.amax_ema_decay,
       "; expected more than 0 and less than 1; 0 would be most_recent");
  need(recipe.amax_ema_decay == DelayedRule{}.decay ||
           (recipe.amax_compute_algo == HistoryPolicy::ema && !recipe.amax_compute_function),
       name, "got amax_ema_decay, which is for amax_compute_algo = ema; leave it out or use that");
  need(!recipe.amax_compute_function || *recipe.amax_compute_function, name,
       "amax_compute_function is empty; leave the pointer null for amax_compute_algo");
  need(!recipe.scaling_factor_compute_algo || *recipe.scaling_factor_compute_algo, name,
       "scaling_factor_compute_algo is empty; leave the pointer null for the usual rule");
  need(recipe.backward_override == BackwardOverride::none, name,
       "got backward_override = ", name_of(recipe.backward_override),
       ", which delayed scaling does not have; use Float8CurrentScaling");
}

void check_recipe(const Float8CurrentScaling& recipe, std::string_view name) {
  check_fp8(recipe.fp8_format, name);
  check_all_params(recipe, name);
}

void check_recipe(const Float8BlockScaling& recipe, std::string_view name) {
  check_fp8(recipe.fp8_format, name);
  check_all_params(recipe, name);
  const int x = recipe.x_block_scaling_dim, w = recipe.w_block_scaling_dim,
            grad = recipe.grad_block_scaling_dim;
  for (const int dim : {x, w, grad})
    need(dim == 1 || dim == 2, name, "got a block scaling dim of ", dim,
         "; expected 1 (1 x 128) or 2 (128 x 128)");
  need(x + w < 4 && w + grad < 4 && grad + x < 4, name, "got x, w and grad block scaling dims of ",
       x, ", ", w, " and ", grad,
       ": two operands of a product have 128 x 128 tiles; give at most one of them 2");
  need(recipe.fp8_gemm_fprop.use_split_accumulator && recipe.fp8_gemm_dgrad.use_split_accumulator &&
           recipe.fp8_gemm_wgrad.use_split_accumulator,
       name, "got use_split_accumulator = false; scales of blocks need it");
  need(!recipe.fp8_dpa && !recipe.fp8_mha, name,
       "got fp8_dpa or fp8_mha, which scales of blocks do not have; leave them false");
}

void check_recipe(const MXFP8BlockScaling& recipe, std::string_view name) {
  check_fp8(recipe.fp8_format, name);
  need(recipe.margin == 0, name, "got margin = ", recipe.margin,
       "; expected 0: a tile's scale is made for that tile and needs no room; margins are "
       "DelayedScaling's");
}

void check_recipe(const NVFP4BlockScaling& recipe, std::string_view name) {
  need(recipe.fp4_format == RecipeFormat::E2M1, name,
       "got fp4_format = ", name_of(recipe.fp4_format), "; expected E2M1");
  need(recipe.fp8_format == RecipeFormat::E4M3, name,
       "got fp8_format = ", name_of(recipe.fp8_format), "; expected E4M3, which its scales are");
  offered(!recipe.row_scaled_activation, name,
          "row_scaled_activation is not offered; leave it false for one f32 scale per tensor");
  offered(recipe.nvfp4_4over6 == "none", name, "got nvfp4_4over6 = \"", shown(recipe.nvfp4_4over6),
          "\", which is not offered; leave it \"none\"");
  need(recipe.nvfp4_4over6_e4m3_use_256 == "all" && recipe.nvfp4_4over6_err_mode == "MAE", name,
       "got settings of nvfp4_4over6, which is \"none\"; leave them as they are");
}

void check_recipe(const CustomRecipe& recipe, std::string_view name) {
  need(recipe.qfactory && *recipe.qfactory, name,
       "has no qfactory; give a function from a role to a quantizer");
  offered(recipe.quantization_alignment == 128, name,
          "got quantization_alignment = ", recipe.quantization_alignment,
          ", which is for groups of a grouped layer and is not offered; leave it 128");
}

}  // namespace

void Recipe::check_fields() const {
  std::visit(
      [this](const auto& recipe) {
        check_recipe(recipe, name());
        check_accumulator(recipe, name());
      },
      any_);
}

}  // namespace octavo
