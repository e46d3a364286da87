#include "octavo/pipeline/inspect_checkpoint.h"

#include <gtest/gtest.h>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

class InspectTest : public PipelineTest {
 protected:
  [[nodiscard]] std::string type_in(const std::string& folder) const {
    for (const InspectedTensor& tensor : inspect_checkpoint(path(folder)).tensors)
      if (tensor.quantized) return tensor.type;
    return "";
  }
};

// Checkpoints use the rule `even` for mxfp4; the preset has another.
TEST_F(InspectTest, AWeightHasTheNameAndTheRuleThatItWasMadeWith) {
  write_model();
  constexpr const char* kEven = "mxfp4: e2m1fn, tile 1x32, scale e8m0 even";
  for (const Dialect target : {Dialect::compressed_tensors, Dialect::octavo}) {
    SCOPED_TRACE(name_of(target));
    const std::string out = text("out-", name_of(target));
    (void)run(out, recipe("mxfp4", target));
    EXPECT_EQ(type_in(out), kEven);
  }
  QuantizeCheckpointOptions floor = recipe("mxfp8");
  floor.plan.scale_rule = "floor";
  (void)run("floor", floor);
  EXPECT_EQ(type_in("floor"), "mxfp8: e4m3fn, tile 1x32, scale e8m0 floor");
  // Codes and scales of other tools do not reveal the rule, and it is not guessed.
  Json config = CheckpointReader(path("floor")).config();
  config.remove("octavo");
  save("floor/config.json", config.dump());
  EXPECT_EQ(type_in("floor"), "mxfp8: e4m3fn, tile 1x32, scale e8m0");
}

TEST_F(InspectTest, PartsAreOneAndWhatIsWrongIsShownAsItIs) {
  write_model();
  (void)run("out", recipe("nvfp4"));
  const Inspection seen = inspect_checkpoint(path("out"), {.statistics = true});
  EXPECT_EQ(seen.dialect, Dialect::compressed_tensors);
  EXPECT_EQ(seen.weights, 12);
  EXPECT_EQ(seen.tensors.size(), 18U);
  EXPECT_EQ(seen.stored_tensors, 18 + 2 * 12);
  EXPECT_EQ(seen.problem, "");
  std::uint64_t bytes = 0;
  for (const InspectedTensor& tensor : seen.tensors) {
    bytes += tensor.bytes;
    EXPECT_EQ(tensor.stored_as.size(), tensor.quantized ? 3U : 1U) << tensor.name;
    ASSERT_TRUE(tensor.statistics.has_value()) << tensor.name;
    // The standard deviation of the random values, within the tolerance for NVFP4 and a few hundred
    // values.
    EXPECT_NEAR(tensor.statistics->deviation(), 0.02, 0.004) << tensor.name;
  }
  EXPECT_EQ(bytes, seen.bytes);
  Json config = CheckpointReader(path("out")).config();
  config.set("quantization_config", Json::object({{"quant_method", "who"}}));
  save("out/config.json", config.dump());
  const Inspection wrong = inspect_checkpoint(path("out"));
  EXPECT_TRUE(has(wrong.problem, "'who'")) << wrong.problem;
  EXPECT_EQ(wrong.tensors.size(), 42U);
  EXPECT_EQ(parse_json(json_of(wrong), "json")["problem"].string_or(""), wrong.problem);
}

}  // namespace
}  // namespace octavo
