// A folder that is complete when a process of a shared run comes: of this plan, this model and
// whole, or an error that says what it is.
#include <gtest/gtest.h>

#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/shared_testing_internal.h"
#include "octavo/report/gate.h"

namespace octavo {
namespace {

class SharedCompleteTest : public SharedTest {
 protected:
  void SetUp() override {
    SharedTest::SetUp();
    write_model();
  }
  void make(const std::string& name = "fp8") const {
    plan(recipe(name));
    (void)share(sharing(0, 2));
  }
  // Other values of one tensor, at its end.
  void change(const std::string& tensor) const {
    const CheckpointReader source(path("model"));
    const StoredTensor& stored = source.at(tensor);
    const safetensors::FileReader& file = source.files()[stored.file];
    std::string content = content_of(file.path());
    content[file.header().data_begin + stored.entry->end - 1] ^= 1;
    save("model/" + std::filesystem::path(file.path()).filename().string(), content);
  }
  [[nodiscard]] std::string a_weight_file() const {
    for (const auto& [name, content] : contents_of(path("out")))
      if (name.ends_with(".safetensors")) return name;
    return "";
  }
};

TEST_F(SharedCompleteTest, AnotherModelsFolderIsNotThisPlans) {
  make();
  EXPECT_TRUE(share(sharing(1, 2)).was_complete);
  change("model.layers.1.mlp.down_proj.weight");
  const auto before = contents_of(path("out"));
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(1, 2)), "made from another source"));
  EXPECT_EQ(contents_of(path("out")), before);
}

TEST_F(SharedCompleteTest, NorIsThatOfAConversion) {
  (void)run("fp8", recipe("fp8-block"));
  ConvertCheckpointResult planned;
  const CheckpointReader source(path("fp8"));
  std::string content;
  write_plan_file(source, plan_conversion(source, Dialect::deepseek, planned),
                  {.work = kPlanOfConvert}, [&](std::string_view piece) { content += piece; });
  save("convert.json", content);
  ConvertCheckpointOptions options;
  options.shared = SharedRun{path("convert.json"), 0, 2};
  (void)convert_checkpoint("", path("out"), Dialect::octavo, options);
  EXPECT_TRUE(convert_checkpoint("", path("out"), Dialect::octavo, options).was_complete);
  std::string weights = content_of(path("fp8/model-00001-of-00002.safetensors"));
  weights.back() ^= 1;
  save("fp8/model-00001-of-00002.safetensors", weights);
  EXPECT_TRUE(
      has(message_of([&] { (void)convert_checkpoint("", path("out"), Dialect::octavo, options); },
                     ErrorCode::io),
          "made from another source"));
}

TEST_F(SharedCompleteTest, WithoutAWeightFileItIsAnError) {
  make();
  const std::string lost = a_weight_file();
  std::filesystem::rename(root / "out" / lost, root / "elsewhere");
  const std::string said = refused(ErrorCode::io, sharing(1, 2));
  EXPECT_TRUE(has(said, lost) && has(said, "not there any more")) << said;
  std::filesystem::rename(root / "elsewhere", root / "out" / lost);
  std::filesystem::resize_file(root / "out" / lost, 1000);
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(1, 2)), lost));
}

TEST_F(SharedCompleteTest, OtherFilesThatAreMissingAreWrittenAgain) {
  make();
  const auto whole = contents_of(path("out"));
  std::filesystem::remove(root / "out/tokenizer.json");
  std::filesystem::remove(root / "out/model.safetensors.index.json");
  const CheckpointReport report = share(sharing(1, 2));
  EXPECT_TRUE(report.was_complete);
  EXPECT_EQ(report.written_again.size(), 2U);
  EXPECT_EQ(contents_of(path("out")), whole);
}

// By one process or several: the limits that the run missed are missed again.
TEST_F(SharedCompleteTest, LimitsAreJudgedAgain) {
  plan(recipe("nvfp4"));
  const CheckpointReport made = share(sharing(0, 1));
  const CheckpointReport again = share(sharing(0, 1));
  ASSERT_TRUE(again.was_complete);
  const ErrorMetrics& worst = made.tensors[made.worst(1)[0]].metrics;
  for (const char* const metric : {"sqnr", "cosine"}) {
    const double value = six_digits(metric[0] == 's' ? worst.sqnr : worst.cosine);
    for (const std::string& limit :
         {text(metric, "<", value + 0.01), text(metric, "<", value - 0.01), text(metric, "<=1000"),
          text(metric, "<0"), std::string("max_abs>0"), std::string("max_abs>1e9"),
          std::string("saturated>0.9"), std::string("mse>=0")}) {
      const auto then = missed_gates(made, {parse_gate(limit)});
      const auto now = missed_gates(again, {parse_gate(limit)});
      ASSERT_EQ(now.size(), then.size()) << limit;
    }
  }
  ASSERT_EQ(missed_gates(again, {parse_gate("sqnr<99")}).size(), 1U);
  EXPECT_EQ(missed_gates(again, {parse_gate("sqnr<99")})[0].tensor,
            missed_gates(made, {parse_gate("sqnr<99")})[0].tensor);
  QuantizeCheckpointOptions options = recipe("nvfp4");
  (void)run("one", options);
  options.resume = true;
  EXPECT_EQ(missed_gates(run("one", options), {parse_gate("sqnr<99")}).size(), 1U);
}

}  // namespace
}  // namespace octavo
