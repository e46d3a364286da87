// Recipes of Transformer Engine: formats and scaling of the tensors of training. One struct per
// strategy, with the fields and defaults of Transformer Engine's class of that name, and Recipe,
// which holds any of them, checked. Every field takes effect or is refused: none is ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "octavo/backend/accumulator_names.h"
#include "octavo/base/macros.h"
#include "octavo/format/format.h"
#include "octavo/quant/delayed.h"
#include "octavo/quant/quantizer.h"

namespace octavo {

// HYBRID: E4M3 for what goes forward, E5M2 for gradients.
enum class RecipeFormat : std::uint8_t { E4M3, E5M2, HYBRID, E2M1 };
[[nodiscard]] OCTAVO_API Format forward_format(RecipeFormat format);
[[nodiscard]] OCTAVO_API Format backward_format(RecipeFormat format);
[[nodiscard]] OCTAVO_API std::string_view name_of(RecipeFormat format);

// Operands of the products of backward, where they are not the quantized ones.
enum class BackwardOverride : std::uint8_t {
  none,
  high_precision,  // the originals of x and w, and dy as it comes
  dequantized,     // what forward multiplied, dequantized, and dy as it comes
};
[[nodiscard]] OCTAVO_API std::string_view name_of(BackwardOverride override);

// The five tensors of a layer that multiplies, and those of attention, which has an output as well;
// softmax is P.
enum class TensorRole : std::uint8_t {
  input,
  weight,
  output,
  grad_output,
  grad_input,
  query,
  key,
  value,
  softmax
};
[[nodiscard]] constexpr bool is_gradient(TensorRole role) {
  return role == TensorRole::grad_output || role == TensorRole::grad_input;
}
[[nodiscard]] OCTAVO_API std::string_view name_of(TensorRole role);  // "grad_output"

// The three products of a layer, see nn/linear/linear_pass.h.
enum class LayerProduct : std::uint8_t { fprop, dgrad, wgrad };

// Every recipe has an `accumulator`: what layers that name none themselves (LinearRun) keep the
// sums of products of codes in, all three of them. f16 is fast on CPUs that have it and less exact
// (docs/numerics/gemm.md); f64 is refused. Attention sums in its own way.
struct MMParams {
  // False allows sums to stay in an FP8 tensor core's own accumulator, which is shorter than f32.
  // It applies where sums are those of such tensor cores (accumulator hopper_fp8 of a layer or
  // recipe): true promotes to f32 every 128 products, false never. A layer that accumulates in f32
  // ignores it, and none of octavo's fast kernels uses the permission.
  bool use_split_accumulator = true;
  constexpr bool operator==(const MMParams&) const = default;
};
struct QParams {
  bool power_2_scale = false;
  float amax_epsilon = 0.0F;  // a smaller amax counts as this
  bool random_hadamard_transform = false, stochastic_rounding = false, fp4_2d_quantization = false;
  constexpr bool operator==(const QParams&) const = default;
};

// This step's scales come from the amaxes of earlier steps (quant/delayed.h).
//
// A function of the user's is held by pointer: two recipes are the same where they have the same
// one. It runs on the host.
using AmaxAlgorithm = std::function<float(std::span<const float> oldest_to_newest)>;
// From the amax of the window, the inv_scale there is and the largest value of the format to the
// next inv_scale; margin and the handling of zero, Inf and NaN are then up to the function.
using ScaleAlgorithm = std::function<float(float amax, float inv_scale, float largest)>;
struct DelayedScaling {
  int margin = 0;
  RecipeFormat fp8_format = RecipeFormat::HYBRID;
  std::int64_t amax_history_len = kMaxHistory;
  HistoryPolicy amax_compute_algo = HistoryPolicy::max;
  // Not Transformer Engine's: of ema, the weight of the history; and how many steps use a scale,
  // while the history moves on with each.
  float amax_ema_decay = DelayedRule{}.decay;
  std::int64_t interval = 1;
  std::shared_ptr<const AmaxAlgorithm> amax_compute_function{};  // if given, instead
  std::shared_ptr<const ScaleAlgorithm> scaling_factor_compute_algo{};
  bool reduce_amax = true;  // over the group of autocast, where it has one
  bool fp8_dpa = false, fp8_mha = false;
  BackwardOverride backward_override = BackwardOverride::none;  // no other
  Accumulator accumulator = Accumulator::native;
  bool operator==(const DelayedScaling&) const = default;
};

// One scale, from the tensor itself. QParams that are not given follow use_power_2_scales.
struct Float8CurrentScaling {
  bool use_power_2_scales = false;
  RecipeFormat fp8_format = RecipeFormat::HYBRID;
  std::optional<QParams> fp8_quant_fwd_inp{}, fp8_quant_fwd_weight{}, fp8_quant_bwd_grad{};
  MMParams fp8_gemm_fprop{.use_split_accumulator = false}, fp8_gemm_dgrad{}, fp8_gemm_wgrad{};
  bool fp8_dpa = false, fp8_mha = false;
  BackwardOverride backward_override = BackwardOverride::none;
  Accumulator accumulator = Accumulator::native;
  bool operator==(const Float8CurrentScaling&) const = default;
};

// f32 scales of tiles of 1 x 128 (dim 1) or 128 x 128 (dim 2). QParams that are not given have
// powers of two unless use_f32_scales.
struct Float8BlockScaling {
  bool use_f32_scales = false;
  RecipeFormat fp8_format = RecipeFormat::E4M3;
  std::optional<QParams> fp8_quant_fwd_inp{}, fp8_quant_fwd_weight{}, fp8_quant_bwd_grad{};
  int x_block_scaling_dim = 1, w_block_scaling_dim = 2, grad_block_scaling_dim = 1;
  MMParams fp8_gemm_fprop{}, fp8_gemm_dgrad{}, fp8_gemm_wgrad{};
  bool fp8_dpa = false, fp8_mha = false;
  BackwardOverride backward_override = BackwardOverride::none;
  Accumulator accumulator = Accumulator::native;
  bool operator==(const Float8BlockScaling&) const = default;
};

// e8m0 scales of tiles of 1 x 32.
struct MXFP8BlockScaling {
  int margin = 0;  // must be 0: the scale of a tile comes from the tile itself
  RecipeFormat fp8_format = RecipeFormat::E4M3;
  bool fp8_dpa = false, fp8_mha = false;
  BackwardOverride backward_override = BackwardOverride::none;
  bool enable_2d_quantization = false;  // 32 x 32 for weights
  Accumulator accumulator = Accumulator::native;
  bool operator==(const MXFP8BlockScaling&) const = default;
};

// E2M1 with e4m3 scales of tiles of 1 x 16 and one f32 for the tensor.
struct NVFP4BlockScaling {
  bool disable_rht = false;                  // of the columnwise copies of inputs and gradients
  bool disable_stochastic_rounding = false;  // of gradients
  bool disable_2d_quantization = false;      // 16 x 16 for weights
  // Not there yet: other values than these are refused.
  bool row_scaled_activation = false;
  std::string nvfp4_4over6 = "none", nvfp4_4over6_e4m3_use_256 = "all",
              nvfp4_4over6_err_mode = "MAE";
  RecipeFormat fp4_format = RecipeFormat::E2M1, fp8_format = RecipeFormat::E4M3;
  bool fp8_dpa = false, fp8_mha = false;
  BackwardOverride backward_override = BackwardOverride::none;
  Accumulator accumulator = Accumulator::native;
  bool operator==(const NVFP4BlockScaling&) const = default;
};

// The tensor and module that a quantizer is for.
struct QuantizerRole {
  std::string module_type;  // "linear" or "dpa", as in Transformer Engine
  TensorRole tensor = TensorRole::input;
  std::string name;  // the module's own, may be empty
};

// A quantizer for each role, from a function; asked once per role, and again after a change of
// recipe. Every module needs its own quantizers where they have state.
using QuantizerFactory = std::function<std::shared_ptr<Quantizer>(const QuantizerRole&)>;
struct CustomRecipe {
  std::shared_ptr<const QuantizerFactory> qfactory{};  // must be given
  RecipeFormat fp8_format = RecipeFormat::HYBRID;      // the format for attention
  bool fp8_dpa = false, fp8_mha = false;
  BackwardOverride backward_override = BackwardOverride::none;
  int quantization_alignment = 128;  // of padding between groups, which is not there yet: no other
  Accumulator accumulator = Accumulator::native;
  bool operator==(const CustomRecipe&) const = default;
};

using AnyRecipe = std::variant<DelayedScaling, Float8CurrentScaling, Float8BlockScaling,
                               MXFP8BlockScaling, NVFP4BlockScaling, CustomRecipe>;
template <typename Struct, typename... Structs>
constexpr bool is_one_of(const std::variant<Structs...>*) {
  return (std::is_same_v<Struct, Structs> || ...);
}
template <typename Struct>
concept RecipeStruct = is_one_of<Struct>(static_cast<const AnyRecipe*>(nullptr));

class OCTAVO_API Recipe {
 public:
  // Any of the structs. Throws Error(invalid_argument) for fields that cannot be, and
  // Error(unsupported) for what octavo does not do.
  template <RecipeStruct Struct>
  Recipe(Struct recipe) : any_(std::move(recipe)) {  // NOLINT: meant to be implicit
    check_fields();
  }

  // The struct, or null where it is another.
  template <RecipeStruct Struct>
  [[nodiscard]] const Struct* get() const {
    return std::get_if<Struct>(&any_);
  }
  [[nodiscard]] const AnyRecipe& any() const { return any_; }

  [[nodiscard]] std::string_view name() const;  // of the struct: "MXFP8BlockScaling"
  [[nodiscard]] bool delayed() const { return get<DelayedScaling>() != nullptr; }
  [[nodiscard]] bool float8_current_scaling() const {
    return get<Float8CurrentScaling>() != nullptr;
  }
  [[nodiscard]] bool float8_per_tensor_scaling() const {
    return delayed() || float8_current_scaling();
  }
  [[nodiscard]] bool float8_block_scaling() const { return get<Float8BlockScaling>() != nullptr; }
  [[nodiscard]] bool mxfp8() const { return get<MXFP8BlockScaling>() != nullptr; }
  [[nodiscard]] bool nvfp4() const { return get<NVFP4BlockScaling>() != nullptr; }
  [[nodiscard]] bool custom() const { return get<CustomRecipe>() != nullptr; }
  // FP8 with f32 scales.
  [[nodiscard]] bool fp8() const { return float8_per_tensor_scaling() || float8_block_scaling(); }
  [[nodiscard]] bool block_scaling() const { return float8_block_scaling() || mxfp8() || nvfp4(); }

  [[nodiscard]] RecipeFormat format() const;  // NVFP4: E2M1
  [[nodiscard]] Format format_of(TensorRole role) const;
  [[nodiscard]] BackwardOverride backward_override() const;
  // Of MMParams; where a recipe has none, Transformer Engine's choice: not in fprop.
  [[nodiscard]] bool use_split_accumulator(LayerProduct product) const;
  [[nodiscard]] Accumulator accumulator() const;
  [[nodiscard]] bool fp8_dpa() const;
  [[nodiscard]] bool fp8_mha() const;

  bool operator==(const Recipe&) const = default;

 private:
  void check_fields() const;
  AnyRecipe any_;
};

// "recipe_type=MXFP8BlockScaling, margin=0, format=E4M3", and then what is not the default.
[[nodiscard]] OCTAVO_API std::string to_string(const Recipe& recipe);

// What autocast uses where none is given: MXFP8BlockScaling, which needs no history and runs
// everywhere.
[[nodiscard]] OCTAVO_API Recipe default_recipe();

// How a role is quantized, QParams that were not given filled in.
[[nodiscard]] OCTAVO_API QParams quant_params(const Float8CurrentScaling& recipe, TensorRole role);
[[nodiscard]] OCTAVO_API QParams quant_params(const Float8BlockScaling& recipe, TensorRole role);
[[nodiscard]] OCTAVO_API QParams quant_params(const NVFP4BlockScaling& recipe, TensorRole role);

}  // namespace octavo
