#include "octavo/pipeline/plan/file/plan_file.h"

#include <gtest/gtest.h>

#include <numeric>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/shared_testing_internal.h"

namespace octavo {
namespace {

class PlanFileTest : public SharedTest {
 protected:
  [[nodiscard]] std::string parse_refusal(const std::string& text) const {
    return message_of([&] { (void)parse_plan_file(text, "plan.json"); },
                      ErrorCode::invalid_argument);
  }
  // The refusal of the plan with a piece of its text replaced.
  [[nodiscard]] std::string refusal_with(const std::string& from, const std::string& to) const {
    std::string content = content_of(path("plan.json"));
    const std::size_t at = content.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    save("changed.json", content.replace(at, from.size(), to));
    QuantizeCheckpointOptions options = sharing(0, 1);
    options.shared->plan = path("changed.json");
    return refused(ErrorCode::invalid_argument, options);
  }
};

TEST_F(PlanFileTest, ReadsBackAndSaysWhatIsRead) {
  write_model();
  QuantizeCheckpointOptions options = recipe("nvfp4");
  options.plan.exclude = {"down_proj", "\"\\\\"};
  options.plan.recipe_for = {{"lm_head", "none"}};
  options.plan.clamp_non_finite = true;
  plan(options);
  const PlanFile file = read_plan_file(path("plan.json"));
  EXPECT_EQ(file.work, kPlanOfQuantize);
  EXPECT_EQ(file.model, path("model"));
  EXPECT_EQ(file.options.recipe, "nvfp4");
  EXPECT_EQ(file.options.exclude, options.plan.exclude);
  EXPECT_EQ(file.options.recipe_for, options.plan.recipe_for);
  EXPECT_TRUE(file.options.clamp_non_finite && file.options.share && file.options.bf16_scales);
  EXPECT_EQ(file.options.shard_bytes, 250'000U);
  const CheckpointReader source(path("model"));
  EXPECT_EQ(file.shards, shard_work(source, plan_quantize(source, file.options)));
  // The byte ranges cover the source once, and shards say how many there are of each.
  const Json document = parse_json(content_of(path("plan.json")), "plan.json");
  std::map<std::string, std::uint64_t> read;
  std::uint64_t all = 0;
  for (const Json& tensor : document["tensors"].elements())
    for (const Json& from : tensor["from"].elements()) {
      const StoredTensor& stored = source.at(from["name"].string_or(""));
      EXPECT_EQ(static_cast<std::uint64_t>(from["begin"].integer_or(-1)), stored.entry->begin);
      EXPECT_EQ(static_cast<std::uint64_t>(from["end"].integer_or(-1)), stored.entry->end);
      read[std::string(tensor["file"].string_or(""))] += stored.nbytes();
      all += stored.nbytes();
    }
  EXPECT_EQ(all, source.nbytes());
  for (const ShardWork& shard : file.shards) EXPECT_EQ(shard.bytes_read, read[shard.file]);
}

TEST_F(PlanFileTest, AChangedPlanIsRefused) {
  write_model();
  plan(recipe("nvfp4"));
  EXPECT_TRUE(has(refusal_with("\"recipe\": \"nvfp4\"", "\"recipe\": \"mxfp4\""), "was changed"));
  EXPECT_TRUE(has(refusal_with("model-00001-of", "model-00009-of"), "was changed"));
  EXPECT_TRUE(has(refusal_with("\"begin\": 0", "\"begin\": 1"), "was changed"));
  EXPECT_TRUE(has(refusal_with("]\n}\n", "]\n} \n"), "was changed"));
  EXPECT_TRUE(has(refusal_with("\"version\": \"", "\"version\": \"9"), "was made by octavo 9"));
  EXPECT_TRUE(has(refusal_with("\"source_fingerprint\": \"", "\"source_fingerprint\": \"0"),
                  "another model"));
  EXPECT_TRUE(has(refusal_with("\"quantize\"", "\"convert\""), "a plan to convert"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(PlanFileTest, APlanOfAnotherModelIsRefused) {
  write_model();
  plan(recipe("fp8"));
  save("model/config.json",
       R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128})");
  EXPECT_TRUE(has(refused(ErrorCode::invalid_argument, sharing(0, 1)), "another model"));
  std::filesystem::rename(path("model"), path("elsewhere"));
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1)), "could not open"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

// Another place and other times of the same files are no other model.
TEST_F(PlanFileTest, ACopyOfTheModelIsTheSame) {
  write_model();
  const auto whole = alone(recipe("fp8"));
  plan(recipe("fp8"));
  // Of the same name: the card (README.md) says it.
  std::filesystem::create_directory(path("elsewhere"));
  std::filesystem::copy(path("model"), path("elsewhere/model"));
  std::filesystem::remove_all(path("model"));
  (void)quantize_checkpoint(path("elsewhere/model"), path("out"), sharing(0, 1));
  ASSERT_TRUE(whole.contains("README.md"));
  EXPECT_EQ(contents_of(path("out")), whole);
}

TEST_F(PlanFileTest, RefusesWhatIsNoPlan) {
  for (const char* const text :
       {"", "{", "[]", "{}", "null", R"({"version": "1"})", R"({"octavo_plan": 2})",
        R"({"octavo_plan": 1})", R"({"octavo_plan": 1, "octavo_plan": 1})",
        R"({"octavo_plan": -1})", R"({"octavo_plan": 1, "options": {"target": "none"}})",
        R"({"octavo_plan": 1, "options": {"what": 1}})",
        R"({"octavo_plan": 1, "options": {"format": "auto"}})",
        R"({"octavo_plan": 1, "options": {"recipe_for": [["a"]]}})",
        R"({"octavo_plan": 1, "work": "verify"})", R"({"octavo_plan": 1, "follow_links": 1})",
        R"({"octavo_plan": 1, "shards": [{"file": "../x"}]})",
        R"({"octavo_plan": 1, "shards": [{"file": "x", "bytes_read": 99999999999999999}]})"}) {
    const std::string said = parse_refusal(text);
    EXPECT_TRUE(said.starts_with("[plan] ")) << text << ": " << said;
    EXPECT_EQ(has(text, "auto"), has(said, "format auto")) << said;
  }
  EXPECT_TRUE(has(message_of([&] { (void)read_plan_file(path("none.json")); }, ErrorCode::io),
                  "none.json"));
}

TEST(ShardWorkTest, TheSlowestIsNearTheMean) {
  // 163 files of about 5 GB, as DeepSeek-V3 has them, and one that is larger.
  std::vector<ShardWork> work;
  for (std::uint64_t i = 0; i < 163; ++i)
    work.push_back(
        {text("f", i), 4'300'000'000 + i * 7'919'000 % 900'000'000, 0, 0, 2'000'000'000});
  work[80].bytes_read = 6'600'000'000;
  for (int world = 1; world <= 64; ++world) {
    const WorldBalance balance = balance_of(work, world);
    const double each = static_cast<double>(work.size()) / world;
    EXPECT_LE(balance.balance(), each >= 20 ? 1.05 : 1 + 1 / each) << world;
    const std::vector<int> ranks = assign_ranks(work, world);
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(world), 0);
    for (std::size_t i = 0; i < work.size(); ++i)
      bytes.at(static_cast<std::size_t>(ranks[i])) += work[i].bytes();
    EXPECT_EQ(*std::max_element(bytes.begin(), bytes.end()), balance.most_bytes);
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}), balance.bytes);
  }
  EXPECT_EQ(balance_of({}, 3).balance(), 1.0);
  EXPECT_EQ(balance_of(work, 200).fewest_files, 0U);
}

}  // namespace
}  // namespace octavo
