// Scales that do not belong to their codes; and correct weights of every scheme, which must have no
// findings.
#include <bit>
#include <random>

#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;
using Fill = std::function<void(std::vector<float>& values, const std::string& module)>;

const std::vector<Piece> kEight{
    {"model.layers.0.self_attn.q_proj", 128, 128}, {"model.layers.0.self_attn.k_proj", 128, 128},
    {"model.layers.0.self_attn.v_proj", 128, 128}, {"model.layers.0.self_attn.o_proj", 128, 128},
    {"model.layers.0.mlp.gate_proj", 256, 128},    {"model.layers.0.mlp.up_proj", 256, 128},
    {"model.layers.0.mlp.down_proj", 128, 256},    {"model.layers.0.mlp.other_proj", 128, 128}};
const std::string kO = kEight[3].module, kGate = kEight[4].module;

std::uint16_t bf16_of(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// Normally distributed weights, one amax for tensors that share a scale, and a head and an
// embedding of the same magnitude.
Model honest(Dialect dialect, const Scaling& scaling, const Fill& fill = {},
             const std::vector<Piece>& pieces = kEight) {
  Model model{.dialect = dialect};
  QuantizedModel all{{}, {"lm_head"}};
  std::vector<std::vector<float>> values;
  float shared = 0;
  for (const Piece& piece : pieces) {
    std::mt19937 random(static_cast<unsigned>(values.size()));
    std::normal_distribution<float> normal(0, 0.02F);
    std::vector<float>& own =
        values.emplace_back(static_cast<std::size_t>(piece.rows * piece.cols));
    for (float& value : own) value = normal(random);
    if (fill) fill(own, piece.module);
    for (const float value : own) shared = std::max(shared, std::fabs(value));
  }
  const bool one = scaling.policy == AmaxPolicy::max &&
                   (scaling.tile == Tile{0, 0} || scaling.scale.format == ScaleFormat::e4m3_f32);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const QuantizedWeight weight{.name = pieces[i].module + ".weight",
                                 .module = pieces[i].module,
                                 .shape = {pieces[i].rows, pieces[i].cols},
                                 .source = DType::bf16,
                                 .scaling = scaling};
    all.weights.push_back(weight);
    const View view = value_view(values[i].data(), DType::f32, weight.shape);
    const QuantizedTensor tensor = quantize(view, scaling, {.given_amax = one ? &shared : nullptr});
    const std::vector<DialectTensor> spelled = dialect_tensors(dialect, weight);
    for (const RowBlockBytes& row_block : pack_row_block(dialect, weight, 0, tensor)) {
      const TensorPlan& plan = spelled[row_block.tensor].plan;
      std::string bytes(reinterpret_cast<const char*>(row_block.bytes.data()),
                        row_block.bytes.size());
      model.tensors[plan.name] = {plan.type, plan.shape, std::move(bytes)};
    }
  }
  std::mt19937 random(99);
  std::normal_distribution<float> normal(0, 0.02F);
  for (const char* const name : {"lm_head.weight", "model.embed_tokens.weight"}) {
    Stored& plain = model.tensors[name] = {StoredType::bf16, {64, 128}, std::string(16384, '\0')};
    for (std::size_t at = 0; at < plain.bytes.size(); at += 2) {
      const std::uint16_t bits = bf16_of(normal(random));
      std::memcpy(plain.bytes.data() + at, &bits, 2);
    }
  }
  model.config = Json::object({{"model_type", "test"}, {"architectures", Json::array({"Test"})}});
  model.metadata = metadata_of(dialect, all.weights);
  configure(dialect, all, model.config, model.hf_quant);
  return model;
}

struct Recipe {
  Dialect dialect;
  Scaling scaling;
};
std::vector<Recipe> recipes() {
  const Dialect comfyui = Dialect::comfyui, own = Dialect::octavo;
  Scaling powers = preset("fp8-block");
  powers.scale.rule = ScaleRule::rceil;
  std::vector<Recipe> out{{kCt, bf16_scaled("fp8")},
                          {kCt, bf16_scaled("fp8-channel")},
                          {kCt, bf16_scaled("fp8-block")},
                          {kCt, preset("mxfp8")},
                          {kCt, preset("mxfp6")},
                          {kCt, preset("mxfp4")},
                          {kCt, preset("nvfp4")},
                          {kDs, preset("fp8-block")},
                          {kDs, powers},
                          {kDs, preset("mxfp8")},
                          {kMo, preset("fp8")},
                          {kMo, preset("fp8-channel")},
                          {kMo, preset("fp8-block")},
                          {kMo, preset("mxfp8")},
                          {kMo, preset("nvfp4")},
                          {comfyui, preset("fp8")},
                          {comfyui, preset("fp8:e5m2")},
                          {comfyui, preset("nvfp4")},
                          {comfyui, preset("mxfp8")},
                          {own, preset("fp8-channel")},
                          {own, preset("nvfp4")},
                          {own, preset("mxfp6:e3m2fn")}};
  for (const ScaleRule rule : {ScaleRule::floor, ScaleRule::ceil, ScaleRule::even})
    for (const char* const name : {"mxfp8", "mxfp4"}) {
      out.push_back({kCt, preset(name)});
      out.back().scaling.scale.rule = rule;
    }
  for (const char* const name : {"fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
    const bool wide = std::string_view(name).starts_with("fp8");
    for (const bool least : {true, false}) {
      if (!least && std::string_view(name) == "nvfp4") continue;
      out.push_back({kCt, wide ? bf16_scaled(name) : preset(name)});
      out.back().scaling.policy = least ? AmaxPolicy::mse : AmaxPolicy::percentile;
      out.back().scaling.percentile = least ? 100.0 : 90.0;
    }
  }
  return out;
}

// Findings of the rules on magnitudes; other rules have their own tests.
std::string size_findings(const Model& model, const VerifyOptions& options = {}) {
  std::string out;
  for (const Finding& one : findings_of(model, options))
    for (const std::string_view rule : {"magnitude", "plausible", "second-level", "zero-scales"})
      if (one.rule == rule)
        out += text(one.severity == Severity::error ? "error " : "warning ", one.rule, " ",
                    one.tensor, ": ", one.message, "\n");
  return out;
}

TEST(VerifyPlausible, HonestWeightsHaveNoFindings) {
  const auto expect_nothing = [](const Fill& fill, std::string_view what,
                                 const std::vector<Piece>& pieces = kEight) {
    for (const Recipe& recipe : recipes()) {
      const Model model = honest(recipe.dialect, recipe.scaling, fill, pieces);
      for (const bool codes : {true, false})
        EXPECT_EQ(size_findings(model, {.loaders = {Loader::vllm}, .codes = codes}), "")
            << what << ": " << name_of(recipe.dialect) << ", " << describe(recipe.scaling);
    }
  };
  expect_nothing({}, "normal");
  expect_nothing(
      [](std::vector<float>& values, const std::string& module) {
        if (module == kO) std::fill(values.begin(), values.end(), 0.0F);
      },
      "a tensor of zeros");
  expect_nothing([](std::vector<float>& values,
                    const std::string&) { std::fill(values.begin(), values.end(), 0.0F); },
                 "all zeros");
  expect_nothing(
      [](std::vector<float>& values, const std::string& module) {
        if (module == kO) std::fill(values.begin(), values.end(), 0.5F);
      },
      "a constant");
  expect_nothing(
      [](std::vector<float>& values, const std::string&) {
        for (std::size_t i = 0; i < values.size() / 2; ++i) values[i] = 0;
      },
      "half zeros");
  expect_nothing(
      [](std::vector<float>& values,
         const std::string&) {  // ternary, as by QAT
        for (float& value : values) value = value > 0.01F ? 0.04F : value < -0.01F ? -0.04F : 0.0F;
      },
      "three values");
  expect_nothing(
      [](std::vector<float>& values, const std::string& module) {
        if (module == kGate)
          for (float& value : values) value *= 20;
        if (module == kO)
          for (float& value : values) value /= 20;
      },
      "of different size");
  const std::vector<Piece> tiny{{"model.layers.0.mlp.other_proj", 128, 128}};
  expect_nothing({}, "one tensor", tiny);
}

// One outlier of thousands: NVFP4 shares a second level over the tensor, and finer scales are not
// affected.
TEST(VerifyPlausible, OutliersAreHonest) {
  for (const float outlier : {50.0F, 2000.0F, -40000.0F})
    for (const Recipe& recipe : recipes()) {
      if (recipe.scaling.tile == Tile{0, 0}) continue;  // a per-tensor scale loses all else
      if (recipe.scaling.tile.cols == 128) continue;
      // Shared by eight tensors, such a second level flushes NVFP4's other tensors to zero; a
      // single tensor has its own.
      const Model model =
          honest(recipe.dialect, recipe.scaling,
                 [&](std::vector<float>& values, const std::string&) { values[777] = outlier; },
                 {{"model.layers.0.mlp.other_proj", 128, 128}});
      EXPECT_EQ(size_findings(model, {.loaders = {Loader::vllm}}), "")
          << outlier << " " << name_of(recipe.dialect) << ", " << describe(recipe.scaling);
    }
}

void change_numbers(Stored& tensor, const std::function<float(float)>& change) {
  for (std::size_t at = 0; at + 4 <= tensor.bytes.size(); at += 4) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + at, 4);
    value = change(value);
    std::memcpy(tensor.bytes.data() + at, &value, 4);
  }
}

bool is_scale(const std::string& name) {
  return name.ends_with("_scale") || name.ends_with("_scale_inv");
}

TEST(VerifyPlausible, ScalesOfOne) {
  for (const Recipe& recipe : {Recipe{kDs, preset("fp8-block")}, Recipe{kMo, preset("fp8-channel")},
                               Recipe{kMo, preset("fp8")}}) {
    Model model = honest(recipe.dialect, recipe.scaling);
    for (auto& [name, tensor] : model.tensors)
      if (is_scale(name)) change_numbers(tensor, [](float) { return 1.0F; });
    const std::vector<Finding> found = findings_of(model, {.loaders = {Loader::vllm}});
    EXPECT_EQ(std::count_if(found.begin(), found.end(),
                            [](const Finding& one) {
                              return one.rule == "plausible" && one.severity == Severity::error;
                            }),
              8);
  }
  // Bytes: E8M0 has 1 at 127, E4M3 at 0x38.
  Model mx = honest(kCt, preset("mxfp8")), four = honest(kCt, preset("mxfp4")),
        nv = honest(kCt, preset("nvfp4"));
  for (Model* const model : {&mx, &four, &nv})
    for (auto& [name, tensor] : model->tensors)
      if (name.ends_with(".weight_scale"))
        std::fill(tensor.bytes.begin(), tensor.bytes.end(), model == &nv ? '\x38' : '\x7F');
  EXPECT_TRUE(size_findings(mx).starts_with("error plausible"));
  EXPECT_TRUE(size_findings(four).find("plausible") != std::string::npos);
  EXPECT_TRUE(size_findings(nv).find("error second-level") != std::string::npos)
      << size_findings(nv);
}

TEST(VerifyPlausible, ScalesThatWereMultiplied) {
  for (const float factor : {128.0F, 0x1p14F}) {  // all scales: unquantized matrices show it
    Model model = honest(kDs, preset("fp8-block"));
    for (auto& [name, tensor] : model.tensors)
      if (is_scale(name)) change_numbers(tensor, [&](float scale) { return scale * factor; });
    EXPECT_NE(size_findings(model), "") << factor;
  }
  Model one = honest(kDs, preset("fp8-block"));  // scales of one tensor: the other tensors show it
  change_numbers(one.tensors.at(kO + ".weight_scale_inv"), [](float scale) { return scale * 128; });
  EXPECT_TRUE(size_findings(one).starts_with("warning plausible " + kO)) << size_findings(one);
  Model byte = honest(kCt, preset("mxfp8"));
  for (char& scale : byte.tensors.at(kO + ".weight_scale").bytes)
    scale = static_cast<char>(scale + 7);
  EXPECT_TRUE(size_findings(byte).starts_with("warning plausible " + kO)) << size_findings(byte);
  // A single scale with a damaged exponent bit.
  Model bit = honest(kDs, preset("fp8-block"));
  const std::string gate = kGate + ".weight_scale_inv";
  float scale = 0;
  std::memcpy(&scale, bit.tensors.at(gate).bytes.data() + 4, 4);
  put(bit, gate, 1, std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) ^ 0x40000000U));
  EXPECT_TRUE(size_findings(bit).starts_with("warning plausible " + kGate)) << size_findings(bit);
}

// Weights that were cast without a scale, and codes of an eighth of their magnitude.
TEST(VerifyPlausible, CodesThatDoNotReach) {
  Model cast = honest(kMo, preset("fp8"));
  for (auto& [name, tensor] : cast.tensors) {
    if (name.ends_with("_proj.weight"))
      for (char& code : tensor.bytes) code = static_cast<char>((code & 0x80) | ((code & 0x7F) / 4));
    if (is_scale(name)) change_numbers(tensor, [](float) { return 1.0F; });
  }
  EXPECT_EQ(size_findings(cast, {.loaders = {Loader::vllm}}).substr(0, 17), "warning magnitude");
  Model small = honest(kDs, preset("fp8-block"));
  for (char& code : small.tensors.at(kO + ".weight").bytes)  // three octaves are 24 codes
    code = static_cast<char>((code & 0x80) | std::max(0, (code & 0x7F) - 24));
  const std::string found = size_findings(small, {.loaders = {Loader::vllm}});
  EXPECT_TRUE(found.starts_with("warning magnitude " + kO + ".weight: only 0 of 1 tiles")) << found;
  // One of the tensors that share a scale is enough.
  Model shared = honest(kMo, preset("fp8"), [](std::vector<float>& values, const std::string& m) {
    if (m == kO)
      for (float& value : values) value *= 40;
  });
  EXPECT_EQ(size_findings(shared), "");
}

// Zero codes under scales that are not those of all-zero tiles; and zero block scales over nonzero
// codes.
TEST(VerifyPlausible, CodesOrScalesThatWereLost) {
  for (const Recipe& recipe :
       {Recipe{kDs, preset("fp8-block")}, Recipe{kCt, bf16_scaled("fp8-channel")},
        Recipe{kCt, preset("mxfp8")}, Recipe{kCt, preset("mxfp4")}, Recipe{kMo, preset("nvfp4")}}) {
    Model model = honest(recipe.dialect, recipe.scaling);
    for (auto& [name, tensor] : model.tensors)
      if (name == kGate + ".weight" || name == kGate + ".weight_packed")
        std::fill(tensor.bytes.begin(), tensor.bytes.end(), '\0');
    EXPECT_TRUE(size_findings(model).starts_with("error magnitude " + kGate))
        << name_of(recipe.dialect);
  }
  Model block = honest(kMo, preset("nvfp4"));
  block.tensors.at(kO + ".weight_scale").bytes[5] = 0;
  EXPECT_TRUE(size_findings(block).starts_with("error zero-scales " + kO)) << size_findings(block);
  for (int at = 40; at < 48; ++at)
    block.tensors.at(kO + ".weight").bytes[static_cast<std::size_t>(at)] = '\x80';
  EXPECT_EQ(size_findings(block), "");
}

// The second-level scale of another tensor, which the block scales do not fit.
TEST(VerifyPlausible, ASecondLevelOfAnother) {
  Model model = honest(kMo, preset("nvfp4"));
  change_numbers(model.tensors.at(kO + ".weight_scale_2"), [](float t) { return t * 1.0e9F; });
  EXPECT_NE(size_findings(model).find("error second-level"), std::string::npos);
  Model blocks = honest(kMo, preset("nvfp4"));
  for (auto& [name, tensor] : blocks.tensors)  // four octaves of E4M3 are 32 codes
    if (name.ends_with(".weight_scale"))
      for (char& scale : tensor.bytes) scale = static_cast<char>(std::max(1, scale - 32));
  EXPECT_NE(size_findings(blocks).find("warning second-level"), std::string::npos);
}

}  // namespace
}  // namespace octavo
