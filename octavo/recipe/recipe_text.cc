#include <sstream>

#include "octavo/base/error.h"
#include "octavo/recipe/recipe.h"

namespace octavo {
namespace {

// What a recipe always shows, then what was set: recipes that differ print differently, except for
// functions, of which only the presence can be told.
class Line {
 public:
  explicit Line(std::string_view name) { out_ << "recipe_type=" << name; }

  template <typename T>
  Line& always(std::string_view field, const T& value) {
    out_ << ", " << field << '=' << shown_value(value);
    return *this;
  }
  template <typename T>
  Line& set(std::string_view field, const T& value, const T& otherwise) {
    return value == otherwise ? *this : always(field, value);
  }
  [[nodiscard]] std::string text() const { return out_.str(); }

 private:
  static std::string shown_value(bool value) { return value ? "True" : "False"; }
  static std::string shown_value(int value) { return std::to_string(value); }
  static std::string shown_value(std::int64_t value) { return std::to_string(value); }
  static std::string shown_value(float value) { return octavo::text(value); }
  static std::string shown_value(const std::string& value) { return shown(value); }
  static std::string shown_value(std::string_view value) { return std::string(value); }
  static std::string shown_value(RecipeFormat value) { return std::string(name_of(value)); }
  static std::string shown_value(BackwardOverride value) { return std::string(name_of(value)); }
  static std::string shown_value(HistoryPolicy value) { return std::string(name_of(value)); }
  static std::string shown_value(const MMParams& value) {
    return octavo::text("(split=", shown_value(value.use_split_accumulator), ")");
  }
  static std::string shown_value(const std::optional<QParams>& value) {
    return octavo::text("(power_2_scale=", shown_value(value->power_2_scale),
                        ", amax_epsilon=", value->amax_epsilon, ")");
  }

  std::ostringstream out_;
};

template <typename Struct>
void add_common(Line& line, const Struct& recipe) {
  line.set("fp8_dpa", recipe.fp8_dpa, false)
      .set("fp8_mha", recipe.fp8_mha, false)
      .set("backward_override", recipe.backward_override, BackwardOverride::none)
      .set("accumulator", name_of(recipe.accumulator), name_of(Accumulator::native));
}

template <typename Struct>
void add_params(Line& line, const Struct& recipe) {
  const Struct plain;
  const std::optional<QParams> none;
  line.set("fp8_quant_fwd_inp", recipe.fp8_quant_fwd_inp, none)
      .set("fp8_quant_fwd_weight", recipe.fp8_quant_fwd_weight, none)
      .set("fp8_quant_bwd_grad", recipe.fp8_quant_bwd_grad, none)
      .set("fp8_gemm_fprop", recipe.fp8_gemm_fprop, plain.fp8_gemm_fprop)
      .set("fp8_gemm_dgrad", recipe.fp8_gemm_dgrad, plain.fp8_gemm_dgrad)
      .set("fp8_gemm_wgrad", recipe.fp8_gemm_wgrad, plain.fp8_gemm_wgrad);
}

void add(Line& line, const DelayedScaling& recipe) {
  line.always("margin", recipe.margin)
      .always("format", recipe.fp8_format)
      .always("amax_history_len", recipe.amax_history_len);
  if (recipe.amax_compute_function) {
    line.always("amax_compute_algo", std::string_view("function"));
  } else {
    line.set("amax_compute_algo", recipe.amax_compute_algo, HistoryPolicy::max);
  }
  if (recipe.scaling_factor_compute_algo)
    line.always("scaling_factor_compute_algo", std::string_view("function"));
  line.set("amax_ema_decay", recipe.amax_ema_decay, DelayedRule{}.decay)
      .set("interval", recipe.interval, std::int64_t{1})
      .set("reduce_amax", recipe.reduce_amax, true);
}

void add(Line& line, const Float8CurrentScaling& recipe) {
  line.always("format", recipe.fp8_format)
      .set("use_power_2_scales", recipe.use_power_2_scales, false);
  add_params(line, recipe);
}

void add(Line& line, const Float8BlockScaling& recipe) {
  line.always("format", recipe.fp8_format)
      .set("use_f32_scales", recipe.use_f32_scales, false)
      .set("x_block_scaling_dim", recipe.x_block_scaling_dim, 1)
      .set("w_block_scaling_dim", recipe.w_block_scaling_dim, 2)
      .set("grad_block_scaling_dim", recipe.grad_block_scaling_dim, 1);
  add_params(line, recipe);
}

void add(Line& line, const MXFP8BlockScaling& recipe) {
  line.always("margin", recipe.margin)
      .always("format", recipe.fp8_format)
      .set("enable_2d_quantization", recipe.enable_2d_quantization, false);
}

void add(Line& line, const NVFP4BlockScaling& recipe) {
  line.always("format", recipe.fp4_format)
      .set("disable_rht", recipe.disable_rht, false)
      .set("disable_stochastic_rounding", recipe.disable_stochastic_rounding, false)
      .set("disable_2d_quantization", recipe.disable_2d_quantization, false);
}

void add(Line& line, const CustomRecipe& recipe) { line.always("format", recipe.fp8_format); }

}  // namespace

std::string to_string(const Recipe& recipe) {
  Line line(recipe.name());
  std::visit(
      [&](const auto& fields) {
        add(line, fields);
        add_common(line, fields);
      },
      recipe.any());
  return line.text();
}

}  // namespace octavo
