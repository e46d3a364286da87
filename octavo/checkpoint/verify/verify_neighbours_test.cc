// Scales that were multiplied in one layer or in all of them, or overwritten by one number; and
// magnitudes as trained models have them, which must have no findings.
#include <array>

#include "octavo/checkpoint/verify/layer_name_internal.h"
#include "octavo/checkpoint/verify/verify_weights_testing_internal.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

using namespace verify_testing;

// Root mean squares of SmolLM2-135M in its first five and last three layers, of which the first
// differ most from their neighbours.
struct Profile {
  const char* module;
  std::array<float, 8> rms;
};
constexpr std::array<Profile, 7> kTrained{
    {{"self_attn.q_proj", {0.264F, 0.252F, 0.225F, 0.219F, 0.220F, 0.171F, 0.154F, 0.149F}},
     {"self_attn.k_proj", {0.421F, 0.273F, 0.262F, 0.251F, 0.232F, 0.137F, 0.131F, 0.122F}},
     {"self_attn.v_proj", {0.047F, 0.126F, 0.111F, 0.147F, 0.148F, 0.254F, 0.286F, 0.290F}},
     {"self_attn.o_proj", {0.067F, 0.142F, 0.128F, 0.158F, 0.159F, 0.195F, 0.226F, 0.222F}},
     {"mlp.gate_proj", {0.185F, 0.199F, 0.198F, 0.193F, 0.194F, 0.174F, 0.182F, 0.174F}},
     {"mlp.up_proj", {0.186F, 0.181F, 0.185F, 0.182F, 0.186F, 0.208F, 0.212F, 0.214F}},
     {"mlp.down_proj", {0.185F, 0.181F, 0.180F, 0.184F, 0.183F, 0.205F, 0.202F, 0.178F}}}};
constexpr int kLayers = 8;
constexpr float kEmbedding = 0.129F, kGain = 0.3F, kInitial = 0.0417F;

std::vector<Piece> pieces() {
  std::vector<Piece> out;
  for (int layer = 0; layer < kLayers; ++layer)
    for (const Profile& of : kTrained)
      out.push_back({text("model.layers.", layer, ".", of.module), 128, 128});
  return out;
}

Model trained(const Recipe& recipe) {
  Model model = honest(
      recipe.dialect, recipe.scaling,
      [](std::vector<float>& values, const std::string& module) {
        const InLayer at = *in_layer(module);
        for (const Profile& of : kTrained)
          if (at.rest == of.module)
            for (float& value : values) value *= of.rms[static_cast<std::size_t>(at.layer)] / 0.02F;
      },
      pieces(), kEmbedding);
  model.config.set("initializer_range", kInitial);
  Stored& norm =
      model.tensors["model.norm.weight"] = {StoredType::f32, {128}, std::string(512, '\0')};
  change_numbers(norm, [](float) { return kGain; });
  return model;
}

// As transformers initializes all of its models.
Model untrained(const Recipe& recipe) {
  Model model = honest(recipe.dialect, recipe.scaling, {}, pieces());
  model.config.set("initializer_range", 0.02);
  return model;
}

TEST(VerifyNeighbours, TrainedAndUntrainedModelsHaveNoFindings) {
  for (const Recipe& recipe : support::some_of(recipes()))
    for (const Model& model : {trained(recipe), untrained(recipe)})
      EXPECT_EQ(size_findings(model, {.loaders = {Loader::vllm}}), "")
          << name_of(recipe.dialect) << ", " << describe(recipe.scaling);
}

// Multiplies the scales of a module by a power of two.
void multiply(Model& model, const std::string& module, int octaves) {
  for (auto& [name, tensor] : model.tensors) {
    if (!name.starts_with(module + ".weight_")) continue;
    const float factor = std::ldexp(1.0F, octaves);
    const bool two = model.tensors.contains(module + ".weight_scale_2");
    if (name.ends_with("_scale_2") || (!two && tensor.type == StoredType::f32))
      change_numbers(tensor, [&](float scale) { return scale * factor; });
    else if (tensor.type == StoredType::u8 && is_scale(name))
      for (char& scale : tensor.bytes) scale = static_cast<char>(scale + octaves);
  }
}

const std::array<Recipe, 6> kChanged{{{kDs, preset("fp8-block")},
                                      {kMo, preset("fp8-channel")},
                                      {kMo, preset("fp8")},
                                      {kCt, preset("mxfp8")},
                                      {kCt, preset("mxfp4")},
                                      {kMo, preset("nvfp4")}}};

TEST(VerifyNeighbours, OneWeightOffByFour) {
  for (const Recipe& recipe : {kChanged[1], kChanged[3]}) {
    const Model good = trained(recipe);
    for (const int octaves : {2, -2})
      for (const int layer : support::some_of(std::vector{0, 4, kLayers - 1}))
        for (const Profile& of : kTrained) {
          Model model = good;
          const std::string module = text("model.layers.", layer, ".", of.module);
          multiply(model, module, octaves);
          const std::string found = size_findings(model, {.loaders = {Loader::vllm}});
          EXPECT_NE(found.find("error plausible"), std::string::npos)
              << module << " by 2^" << octaves << ", " << describe(recipe.scaling);
        }
  }
}

TEST(VerifyNeighbours, OneLayerOffByFour) {
  for (const Recipe& recipe : kChanged)
    for (const int octaves : {2, -2})
      for (const int layer : support::some_of(std::vector{0, 3, kLayers - 1})) {
        Model model = trained(recipe);
        for (const Profile& of : kTrained)
          multiply(model, text("model.layers.", layer, ".", of.module), octaves);
        EXPECT_NE(size_findings(model, {.loaders = {Loader::vllm}}).find("error plausible"),
                  std::string::npos)
            << layer << " by 2^" << octaves << ", " << describe(recipe.scaling);
      }
}

TEST(VerifyNeighbours, AllLayersOffBySixteen) {
  for (const Recipe& recipe : kChanged)
    for (const bool is_trained : {true, false})
      for (const int octaves : support::some_of(std::vector{4, 6, -4, -8})) {
        Model model = is_trained ? trained(recipe) : untrained(recipe);
        for (const Piece& piece : pieces()) multiply(model, piece.module, octaves);
        EXPECT_NE(size_findings(model, {.loaders = {Loader::vllm}})
                      .find("error plausible : the median root mean square"),
                  std::string::npos)
            << is_trained << " by 2^" << octaves << ", " << describe(recipe.scaling);
      }
}

TEST(VerifyNeighbours, OneExpertOffByFour) {
  std::vector<Piece> experts;
  for (int layer = 0; layer < 2; ++layer)
    for (int i = 0; i < 6; ++i)
      experts.push_back({text("model.layers.", layer, ".mlp.experts.", i, ".up_proj"), 128, 128});
  const Model good = honest(kMo, preset("fp8-channel"), {}, experts);
  EXPECT_EQ(size_findings(good, {.loaders = {Loader::vllm}}), "");
  Model model = good;
  multiply(model, "model.layers.1.mlp.experts.3.up_proj", 2);
  EXPECT_NE(size_findings(model, {.loaders = {Loader::vllm}})
                .find("error plausible model.layers.1.mlp.experts.3.up_proj"),
            std::string::npos);
}

// All scales of each weight replaced by their mean.
TEST(VerifyOverwritten, ScalesOfOneNumber) {
  const auto in_numbers = [](Stored& tensor) {
    double sum = 0;
    change_numbers(tensor, [&](float scale) { return sum += static_cast<double>(scale), scale; });
    const auto mean = static_cast<float>(4 * sum / static_cast<double>(tensor.bytes.size()));
    change_numbers(tensor, [&](float) { return mean; });
  };
  const auto in_bytes = [](Stored& tensor) {  // of a format that counts upwards with the value
    std::vector<char> sorted(tensor.bytes.begin(), tensor.bytes.end());
    std::sort(sorted.begin(), sorted.end());
    std::fill(tensor.bytes.begin(), tensor.bytes.end(), sorted[sorted.size() / 2]);
  };
  for (const Recipe& recipe :
       {Recipe{kMo, preset("fp8-channel")}, Recipe{kCt, preset("mxfp8")},
        Recipe{kCt, preset("mxfp4")}, Recipe{kMo, preset("nvfp4")}, Recipe{kCt, preset("nvfp4")}}) {
    Model model = trained(recipe);
    int weights = 0;
    for (auto& [name, tensor] : model.tensors) {
      if (!name.ends_with(".weight_scale")) continue;
      tensor.type == StoredType::f32 ? in_numbers(tensor) : in_bytes(tensor);
      ++weights;
    }
    int found = 0;
    for (const Finding& one : findings_of(model, {.loaders = {Loader::vllm}}))
      found += one.rule == "plausible" && one.severity == Severity::error &&
               one.message.find("overwritten") != std::string::npos;
    EXPECT_EQ(found, weights) << describe(recipe.scaling);
  }
}

// One scale of a whole tensor, written to each of its rows, is no such thing.
TEST(VerifyOverwritten, AScaleOfTheTensorInEachRow) {
  Model model = honest(kMo, preset("fp8-channel"));
  const Model per_tensor = honest(kMo, preset("fp8"));
  for (auto& [name, tensor] : model.tensors) {
    if (name.ends_with("_proj.weight")) tensor.bytes = per_tensor.tensors.at(name).bytes;
    if (!is_scale(name)) continue;
    float scale = 0;
    std::memcpy(&scale, per_tensor.tensors.at(name).bytes.data(), 4);
    change_numbers(tensor, [&](float) { return scale; });
  }
  EXPECT_EQ(size_findings(model, {.loaders = {Loader::vllm}}).find("overwritten"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo
