// Scales that do not belong to their codes; and correct weights of every scheme, which must have no
// findings.
#include <bit>

#include "octavo/checkpoint/verify/verify_weights_testing_internal.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

using namespace verify_testing;

TEST(VerifyPlausible, HonestWeightsHaveNoFindings) {
  const auto expect_nothing = [](const Fill& fill, std::string_view what,
                                 const std::vector<Piece>& pieces = kEight) {
    for (const Recipe& recipe : support::some_of(recipes())) {
      const Model model = honest(recipe.dialect, recipe.scaling, fill, pieces);
      for (const bool codes : {true, false})
        EXPECT_EQ(size_findings(model, {.loaders = {Loader::vllm}, .codes = codes}), "")
            << what << ": " << name_of(recipe.dialect) << ", " << describe(recipe.scaling);
    }
  };
  expect_nothing({}, "normal");
  expect_nothing(
      [](std::vector<float>& values, const std::string& module) {
        if (module == kOut) std::fill(values.begin(), values.end(), 0.0F);
      },
      "a tensor of zeros");
  expect_nothing([](std::vector<float>& values,
                    const std::string&) { std::fill(values.begin(), values.end(), 0.0F); },
                 "all zeros");
  expect_nothing(
      [](std::vector<float>& values, const std::string& module) {
        if (module == kOut) std::fill(values.begin(), values.end(), 0.5F);
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
        if (module == kOut)
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
    for (const Recipe& recipe : support::some_of(recipes())) {
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

TEST(VerifyPlausible, ScalesOfOne) {
  for (const Recipe& recipe : {Recipe{kDs, preset("fp8-block")}, Recipe{kMo, preset("fp8-channel")},
                               Recipe{kMo, preset("fp8")}}) {
    Model model = honest(recipe.dialect, recipe.scaling);
    for (auto& [name, tensor] : model.tensors)
      if (is_scale(name)) change_numbers(tensor, [](float) { return 1.0F; });
    const std::vector<Finding> found = findings_of(model, {.loaders = {Loader::vllm}});
    EXPECT_EQ(std::count_if(found.begin(), found.end(),
                            [](const Finding& one) {
                              return one.rule == "plausible" && one.severity == Severity::error &&
                                     !one.tensor.empty();
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
  change_numbers(one.tensors.at(kOut + ".weight_scale_inv"),
                 [](float scale) { return scale * 128; });
  EXPECT_TRUE(size_findings(one).starts_with("warning plausible " + kOut)) << size_findings(one);
  Model byte = honest(kCt, preset("mxfp8"));
  for (char& scale : byte.tensors.at(kOut + ".weight_scale").bytes)
    scale = static_cast<char>(scale + 7);
  EXPECT_TRUE(size_findings(byte).starts_with("warning plausible " + kOut)) << size_findings(byte);
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
  for (char& code : small.tensors.at(kOut + ".weight").bytes)  // three octaves are 24 codes
    code = static_cast<char>((code & 0x80) | std::max(0, (code & 0x7F) - 24));
  const std::string found = size_findings(small, {.loaders = {Loader::vllm}});
  EXPECT_TRUE(found.starts_with("warning magnitude " + kOut + ".weight: only 0 of 1 tiles"))
      << found;
  // One of the tensors that share a scale is enough.
  Model shared = honest(kMo, preset("fp8"), [](std::vector<float>& values, const std::string& m) {
    if (m == kOut)
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
  block.tensors.at(kOut + ".weight_scale").bytes[5] = 0;
  EXPECT_TRUE(size_findings(block).starts_with("error zero-scales " + kOut))
      << size_findings(block);
  for (int at = 40; at < 48; ++at)
    block.tensors.at(kOut + ".weight").bytes[static_cast<std::size_t>(at)] = '\x80';
  EXPECT_EQ(size_findings(block), "");
}

// The second-level scale of another tensor, which the block scales do not fit.
TEST(VerifyPlausible, ASecondLevelOfAnother) {
  Model model = honest(kMo, preset("nvfp4"));
  change_numbers(model.tensors.at(kOut + ".weight_scale_2"), [](float t) { return t * 1.0e9F; });
  EXPECT_NE(size_findings(model).find("error second-level"), std::string::npos);
  Model blocks = honest(kMo, preset("nvfp4"));
  for (auto& [name, tensor] : blocks.tensors)  // four octaves of E4M3 are 32 codes
    if (name.ends_with(".weight_scale"))
      for (char& scale : tensor.bytes) scale = static_cast<char>(std::max(1, scale - 32));
  EXPECT_NE(size_findings(blocks).find("warning second-level"), std::string::npos);
}

}  // namespace
}  // namespace octavo
