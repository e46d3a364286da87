#include "octavo/recipe/recipe.h"

#include <gtest/gtest.h>

#include <string>

#include "octavo/base/error.h"
#include "octavo/recipe/quantizer_set.h"

namespace octavo {
namespace {

// What constructing a recipe throws: the code and the message; "" if nothing is.
template <typename Struct>
std::pair<std::optional<ErrorCode>, std::string> refusal(const Struct& fields) {
  try {
    (void)Recipe(fields);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {std::nullopt, ""};
}

template <typename Struct>
void expect_invalid(const Struct& fields, std::string_view part) {
  const auto [code, message] = refusal(fields);
  EXPECT_EQ(code, ErrorCode::invalid_argument) << part;
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

Scaling scaling(const Recipe& recipe, TensorRole role) {
  return make_quantizer(recipe, {.module_type = "linear", .tensor = role, .name = ""})->scaling();
}

static_assert(std::is_convertible_v<DelayedScaling, Recipe>);
static_assert(!std::is_constructible_v<Recipe, RecipeFormat>);
static_assert(!std::is_constructible_v<Recipe, int>);

TEST(Recipe, PrintsAsTransformerEngine) {
  EXPECT_EQ(to_string(MXFP8BlockScaling{}), "recipe_type=MXFP8BlockScaling, margin=0, format=E4M3");
  EXPECT_EQ(to_string(DelayedScaling{}),
            "recipe_type=DelayedScaling, margin=0, format=HYBRID, amax_history_len=1024");
  EXPECT_EQ(to_string(Float8CurrentScaling{}), "recipe_type=Float8CurrentScaling, format=HYBRID");
  EXPECT_EQ(to_string(Float8BlockScaling{}), "recipe_type=Float8BlockScaling, format=E4M3");
  EXPECT_EQ(to_string(NVFP4BlockScaling{}), "recipe_type=NVFP4BlockScaling, format=E2M1");
}

TEST(Recipe, PrintsWhatIsNotTheDefault) {
  EXPECT_EQ(to_string(DelayedScaling{.margin = 2,
                                     .fp8_format = RecipeFormat::E4M3,
                                     .amax_history_len = 16,
                                     .amax_compute_algo = HistoryPolicy::most_recent,
                                     .reduce_amax = false,
                                     .fp8_dpa = true,
                                     .fp8_mha = true}),
            "recipe_type=DelayedScaling, margin=2, format=E4M3, amax_history_len=16, "
            "amax_compute_algo=most_recent, reduce_amax=False, fp8_dpa=True, fp8_mha=True");
  EXPECT_EQ(to_string(MXFP8BlockScaling{.backward_override = BackwardOverride::dequantized,
                                        .enable_2d_quantization = true}),
            "recipe_type=MXFP8BlockScaling, margin=0, format=E4M3, enable_2d_quantization=True, "
            "backward_override=dequantized");
  EXPECT_EQ(to_string(Float8BlockScaling{.use_f32_scales = true,
                                         .fp8_quant_bwd_grad = QParams{.amax_epsilon = 0.5F},
                                         .w_block_scaling_dim = 1}),
            "recipe_type=Float8BlockScaling, format=E4M3, use_f32_scales=True, "
            "w_block_scaling_dim=1, fp8_quant_bwd_grad=(power_2_scale=False, amax_epsilon=0.5)");
}

TEST(Recipe, Accumulators) {
  EXPECT_EQ(to_string(MXFP8BlockScaling{.accumulator = Accumulator::f16}),
            "recipe_type=MXFP8BlockScaling, margin=0, format=E4M3, accumulator=float16");
  EXPECT_EQ(Recipe(DelayedScaling{}).accumulator(), Accumulator::native);
  EXPECT_EQ(Recipe(DelayedScaling{.accumulator = Accumulator::f32}).accumulator(),
            Accumulator::f32);
  EXPECT_FALSE(Recipe(MXFP8BlockScaling{.accumulator = Accumulator::f16}) ==
               Recipe(MXFP8BlockScaling{}));
  expect_invalid(MXFP8BlockScaling{.accumulator = Accumulator::amx_bf16},
                 "[MXFP8BlockScaling] got accumulator = amx_bf16, which is for single products; "
                 "expected native, float32, float16 or hopper_fp8");
  expect_invalid(DelayedScaling{.accumulator = Accumulator::f64},
                 "[DelayedScaling] got accumulator = float64");
  expect_invalid(NVFP4BlockScaling{.accumulator = Accumulator::hopper_fp8},
                 "[NVFP4BlockScaling] got accumulator = hopper_fp8");
}

TEST(Recipe, PredicatesAndFormats) {
  struct Row {
    Recipe recipe;
    bool delayed, current, per_tensor, block8, mx, nv, custom, fp8, block;
  };
  const auto factory = std::make_shared<const QuantizerFactory>(
      [](const QuantizerRole&) { return std::make_shared<MXFP8Quantizer>(); });
  const Row rows[] = {
      {DelayedScaling{}, true, false, true, false, false, false, false, true, false},
      {Float8CurrentScaling{}, false, true, true, false, false, false, false, true, false},
      {Float8BlockScaling{}, false, false, false, true, false, false, false, true, true},
      {MXFP8BlockScaling{}, false, false, false, false, true, false, false, false, true},
      {NVFP4BlockScaling{}, false, false, false, false, false, true, false, false, true},
      {CustomRecipe{.qfactory = factory}, false, false, false, false, false, false, true, false,
       false},
  };
  for (const Row& row : rows) {
    const Recipe& r = row.recipe;
    EXPECT_EQ(r.delayed(), row.delayed) << r.name();
    EXPECT_EQ(r.float8_current_scaling(), row.current) << r.name();
    EXPECT_EQ(r.float8_per_tensor_scaling(), row.per_tensor) << r.name();
    EXPECT_EQ(r.float8_block_scaling(), row.block8) << r.name();
    EXPECT_EQ(r.mxfp8(), row.mx) << r.name();
    EXPECT_EQ(r.nvfp4(), row.nv) << r.name();
    EXPECT_EQ(r.custom(), row.custom) << r.name();
    EXPECT_EQ(r.fp8(), row.fp8) << r.name();
    EXPECT_EQ(r.block_scaling(), row.block) << r.name();
  }
  const Recipe hybrid = MXFP8BlockScaling{.fp8_format = RecipeFormat::HYBRID};
  EXPECT_EQ(hybrid.format_of(TensorRole::input), e4m3fn);
  EXPECT_EQ(hybrid.format_of(TensorRole::weight), e4m3fn);
  EXPECT_EQ(hybrid.format_of(TensorRole::grad_output), e5m2);
  EXPECT_EQ(Recipe(MXFP8BlockScaling{}).format_of(TensorRole::grad_output), e4m3fn);
  EXPECT_EQ(Recipe(NVFP4BlockScaling{}).format_of(TensorRole::grad_input), e2m1fn);
}

TEST(Recipe, EveryArgumentTakesEffect) {
  using enum TensorRole;
  for (const TensorRole role : {input, weight, grad_output}) {
    EXPECT_EQ(scaling(Float8CurrentScaling{}, role).scale.rule, ScaleRule::f32);
    EXPECT_EQ(scaling(Float8CurrentScaling{.use_power_2_scales = true}, role).scale.rule,
              ScaleRule::rceil);
    EXPECT_EQ(scaling(Float8BlockScaling{}, role).scale.rule, ScaleRule::rceil);
    EXPECT_EQ(scaling(Float8BlockScaling{.use_f32_scales = true}, role).scale.rule, ScaleRule::f32);
  }
  // QParams reach their own role and no other.
  const Float8CurrentScaling floor{.fp8_quant_fwd_weight = QParams{.amax_epsilon = 0.25F}};
  EXPECT_EQ(scaling(floor, weight).scale.min_amax, 0.25F);
  EXPECT_EQ(scaling(floor, input).scale.min_amax, 0.0F);
  EXPECT_EQ(scaling(floor, grad_output).scale.min_amax, 0.0F);

  const Recipe block = Float8BlockScaling{};
  EXPECT_EQ(scaling(block, input).tile, (Tile{1, 128}));
  EXPECT_EQ(scaling(block, weight).tile, (Tile{128, 128}));
  EXPECT_EQ(scaling(block, grad_output).tile, (Tile{1, 128}));
  const Recipe other = Float8BlockScaling{.x_block_scaling_dim = 2, .w_block_scaling_dim = 1};
  EXPECT_EQ(scaling(other, input).tile, (Tile{128, 128}));
  EXPECT_EQ(scaling(other, weight).tile, (Tile{1, 128}));

  EXPECT_EQ(scaling(MXFP8BlockScaling{}, weight).tile, (Tile{1, 32}));
  const Recipe mx = MXFP8BlockScaling{.enable_2d_quantization = true};
  EXPECT_EQ(scaling(mx, weight).tile, (Tile{32, 32}));
  EXPECT_EQ(scaling(mx, input).tile, (Tile{1, 32}));

  const Recipe nv = NVFP4BlockScaling{};
  EXPECT_TRUE(scaling(nv, input).hadamard.columnwise);
  EXPECT_FALSE(scaling(nv, input).hadamard.rowwise);
  EXPECT_EQ(scaling(nv, weight).hadamard, Hadamard{});
  EXPECT_EQ(scaling(nv, weight).tile, (Tile{16, 16}));
  EXPECT_EQ(scaling(nv, grad_output).encode.rounding, Rounding::stochastic);
  EXPECT_EQ(scaling(nv, input).encode.rounding, Rounding::nearest_even);
  const Recipe plain = NVFP4BlockScaling{
      .disable_rht = true, .disable_stochastic_rounding = true, .disable_2d_quantization = true};
  EXPECT_EQ(scaling(plain, input).hadamard, Hadamard{});
  EXPECT_EQ(scaling(plain, weight).tile, (Tile{1, 16}));
  EXPECT_EQ(scaling(plain, grad_output).encode.rounding, Rounding::nearest_even);

  EXPECT_TRUE(Recipe(DelayedScaling{.fp8_dpa = true}).fp8_dpa());
  EXPECT_TRUE(Recipe(MXFP8BlockScaling{.fp8_mha = true}).fp8_mha());
  EXPECT_FALSE(Recipe(MXFP8BlockScaling{}).fp8_mha());
}

TEST(Recipe, FieldsThatCannotBe) {
  const std::string pure = "pure E5M2 training is not supported";
  expect_invalid(DelayedScaling{.fp8_format = RecipeFormat::E5M2}, pure);
  expect_invalid(Float8CurrentScaling{.fp8_format = RecipeFormat::E5M2}, pure);
  expect_invalid(Float8BlockScaling{.fp8_format = RecipeFormat::E5M2}, pure);
  expect_invalid(MXFP8BlockScaling{.fp8_format = RecipeFormat::E5M2}, pure);
  expect_invalid(MXFP8BlockScaling{.fp8_format = RecipeFormat::E2M1}, "NVFP4BlockScaling");
  expect_invalid(MXFP8BlockScaling{.margin = 1}, "margin = 1; expected 0");
  expect_invalid(DelayedScaling{.margin = 200}, "margin = 200");
  expect_invalid(DelayedScaling{.amax_history_len = 0}, "amax_history_len = 0; expected 1 to 1024");
  expect_invalid(DelayedScaling{.amax_history_len = 1025}, "amax_history_len = 1025");
  expect_invalid(DelayedScaling{.backward_override = BackwardOverride::dequantized},
                 "backward_override = dequantized");
  expect_invalid(Float8BlockScaling{.x_block_scaling_dim = 3}, "dim of 3");
  expect_invalid(Float8BlockScaling{.x_block_scaling_dim = 2}, "dims of 2, 2 and 1");
  expect_invalid(Float8BlockScaling{.grad_block_scaling_dim = 2}, "dims of 1, 2 and 2");
  expect_invalid(
      Float8BlockScaling{
          .x_block_scaling_dim = 2, .w_block_scaling_dim = 1, .grad_block_scaling_dim = 2},
      "dims of 2, 1 and 2");
  expect_invalid(Float8BlockScaling{.fp8_gemm_wgrad = {.use_split_accumulator = false}},
                 "use_split_accumulator = false");
  expect_invalid(Float8BlockScaling{.fp8_dpa = true}, "fp8_dpa");
  expect_invalid(Float8CurrentScaling{.fp8_quant_fwd_inp = QParams{.stochastic_rounding = true}},
                 "fp8_quant_fwd_inp asks for");
  expect_invalid(Float8CurrentScaling{.fp8_quant_bwd_grad = QParams{.amax_epsilon = -1.0F}},
                 "amax_epsilon = -1");
  expect_invalid(NVFP4BlockScaling{.fp4_format = RecipeFormat::E4M3}, "fp4_format = E4M3");
  expect_invalid(NVFP4BlockScaling{.nvfp4_4over6_err_mode = "MSE"}, "nvfp4_4over6");
  expect_invalid(CustomRecipe{}, "has no qfactory");
  EXPECT_EQ(refusal(NVFP4BlockScaling{.row_scaled_activation = true}).first,
            ErrorCode::unsupported);
  EXPECT_EQ(refusal(NVFP4BlockScaling{.nvfp4_4over6 = "all"}).first, ErrorCode::unsupported);
}

TEST(Recipe, EqualWhereAllFieldsAre) {
  EXPECT_EQ(Recipe(DelayedScaling{}), Recipe(DelayedScaling{}));
  EXPECT_NE(Recipe(DelayedScaling{}), Recipe(DelayedScaling{.margin = 1}));
  EXPECT_NE(Recipe(DelayedScaling{}), Recipe(MXFP8BlockScaling{}));
  const auto halve =
      std::make_shared<const AmaxAlgorithm>([](std::span<const float>) { return 1.0F; });
  const auto also =
      std::make_shared<const AmaxAlgorithm>([](std::span<const float>) { return 1.0F; });
  EXPECT_EQ(Recipe(DelayedScaling{.amax_compute_function = halve}),
            Recipe(DelayedScaling{.amax_compute_function = halve}));
  EXPECT_NE(Recipe(DelayedScaling{.amax_compute_function = halve}),
            Recipe(DelayedScaling{.amax_compute_function = also}));
}

TEST(Recipe, AFactoryAnswersForEveryRole) {
  std::vector<std::string> asked;
  const CustomRecipe recipe{
      .qfactory = std::make_shared<const QuantizerFactory>(
          [&](const QuantizerRole& role) -> std::shared_ptr<Quantizer> {
            asked.push_back(text(role.module_type, '.', role.name, '.', name_of(role.tensor)));
            if (role.tensor == TensorRole::output) return nullptr;
            return std::make_shared<MXFP8Quantizer>();
          })};
  const std::vector<TensorRole> good{TensorRole::input, TensorRole::weight},
      bad{TensorRole::output};
  const QuantizerSet set(recipe, {.module_type = "linear", .name = "fc1", .roles = good});
  EXPECT_EQ(asked, (std::vector<std::string>{"linear.fc1.input", "linear.fc1.weight"}));
  EXPECT_EQ(set.at(1).name(), "MXFP8Quantizer");
  EXPECT_THROW(QuantizerSet(recipe, {.roles = bad}), Error);
}

TEST(Recipe, SplitAccumulators) {
  const auto all = [](const Recipe& recipe) {
    return std::vector<bool>{recipe.use_split_accumulator(LayerProduct::fprop),
                             recipe.use_split_accumulator(LayerProduct::dgrad),
                             recipe.use_split_accumulator(LayerProduct::wgrad)};
  };
  EXPECT_EQ(all(DelayedScaling{}), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(all(Float8CurrentScaling{}), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(all(Float8BlockScaling{}), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(all(Float8CurrentScaling{.fp8_gemm_fprop = {.use_split_accumulator = true},
                                     .fp8_gemm_wgrad = {.use_split_accumulator = false}}),
            (std::vector<bool>{true, true, false}));
}

}  // namespace
}  // namespace octavo
