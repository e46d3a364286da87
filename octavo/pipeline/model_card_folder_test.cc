// README.md in the folder of a quantized checkpoint.
#include <gtest/gtest.h>

#include <filesystem>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

class ModelCardFolderTest : public PipelineTest {
 protected:
  [[nodiscard]] std::string read(const std::string& name) const {
    return read_small_file(path(name), 1 << 20);
  }
  static bool has(const std::string& whole, std::string_view part) {
    return whole.find(part) != std::string::npos;
  }
};

TEST_F(ModelCardFolderTest, SaysRecipeErrorAndHowToLoad) {
  write_model();
  const CheckpointReport report = run("out", recipe("mxfp4"));
  const std::string card = read("out/README.md");
  EXPECT_TRUE(card.starts_with("---\ntags: # octavo\n")) << card;
  for (const char* part :
       {"- mxfp4 # octavo\n", "- 4-bit # octavo\n", "- compressed-tensors", "recipe `mxfp4`",
        "| `mxfp4` | 12 | 4.25 |", "vllm serve .", "no data was seen"})
    EXPECT_TRUE(has(card, part)) << part << "\n" << card;
  const TensorReport& worst = report.tensors[report.worst(1)[0]];
  EXPECT_TRUE(has(card, "`" + worst.name + "`")) << card;
  const Json errors = CheckpointReader(path("out")).config()["octavo"]["errors"];
  ASSERT_EQ(errors.elements().size(), 1U);
  // Rounded to two digits.
  EXPECT_NEAR(errors.elements()[0]["sqnr_worst"].number_or(0), worst.metrics.sqnr, 0.005);
  EXPECT_EQ(errors.elements()[0]["worst"].string_or(""), worst.name);
}

TEST_F(ModelCardFolderTest, KeepsTheSourcesOwn) {
  write_model();
  save("model/README.md", "---\nlicense: mit\n---\n# Mine\n");
  (void)run("out", recipe("fp8-channel"));
  const std::string card = read("out/README.md");
  EXPECT_TRUE(card.starts_with("---\nlicense: mit\ntags: # octavo\n")) << card;
  EXPECT_TRUE(card.ends_with("# Mine\n")) << card;
  // Another folder than the card is about does not have it.
  (void)dequantize_checkpoint(path("out"), path("plain"), DType::bf16);
  EXPECT_EQ(read("plain/README.md"), "---\nlicense: mit\n---\n# Mine\n");
}

TEST_F(ModelCardFolderTest, HubNamesAreKnownFromConfig) {
  write_model();
  save("model/config.json", R"({"model_type": "llama", "_name_or_path": "owner/some-model"})");
  (void)run("out", recipe("mxfp8"));
  EXPECT_TRUE(has(read("out/README.md"), "base_model: \"owner/some-model\""));
  EXPECT_TRUE(has(read("out/README.md"), "# `owner/some-model` in mxfp8"));
  save("model/config.json", R"({"model_type": "llama", "_name_or_path": "/home/me/some-model"})");
  (void)run("two", recipe("mxfp8"));
  EXPECT_FALSE(has(read("two/README.md"), "base_model"));
  EXPECT_FALSE(has(read("two/README.md"), "some-model"));
}

// Not even the hub's cache: a copy of it lies elsewhere.
TEST_F(ModelCardFolderTest, BytesDoNotDependOnWhereTheModelLies) {
  write_model();
  (void)run("out", recipe("mxfp8"));
  for (const char* const name :
       {"another-name", "models--org--big_model-7B/snapshots/abc", "deep/er/model"}) {
    std::filesystem::create_directories((root / name).parent_path());
    std::filesystem::copy(root / "model", root / name);
    std::filesystem::remove_all(path("two"));
    (void)quantize_checkpoint(path(name), path("two"), recipe("mxfp8"));
    EXPECT_EQ(contents_of(path("two")), contents_of(path("out"))) << name;
  }
}

TEST_F(ModelCardFolderTest, EncodersAreLoadedByTheirOwnClass) {
  write_model();
  (void)run("decoder", recipe("mxfp8"));
  EXPECT_TRUE(has(read("decoder/README.md"), "`AutoModelForCausalLM.from_pretrained(\".\")`"));
  for (const auto& [architecture, said] : {std::pair{"BertModel", "`BertModel.from_pretrained"},
                                           std::pair{"a`b", "`AutoModelForCausalLM.from"}}) {
    save("model/config.json",
         text(R"({"model_type": "new", "architectures": [")", architecture, R"("]})"));
    const std::string out = text("out", architecture[0]);
    (void)run(out, recipe("mxfp8"));
    EXPECT_TRUE(has(read(out + "/README.md"), said)) << read(out + "/README.md");
  }
}

// The card of a complete folder is the user's: changed it stays, missing it is written again.
TEST_F(ModelCardFolderTest, ResumingLeavesAChangedCardAndRestoresAMissingOne) {
  write_model();
  QuantizeCheckpointOptions options = recipe("nvfp4");
  (void)run("out", options);
  const std::string card = read("out/README.md");
  options.resume = true;
  save("out/README.md", "my words");
  EXPECT_TRUE(run("out", options).was_complete);
  EXPECT_EQ(read("out/README.md"), "my words");
  std::filesystem::remove(root / "out/README.md");
  EXPECT_EQ(run("out", options).written_again, std::vector<std::string>{"README.md"});
  EXPECT_EQ(read("out/README.md"), card);
}

TEST_F(ModelCardFolderTest, NothingQuantizedIsNoCard) {
  write_model();
  save("model/README.md", "# Mine\n");
  QuantizeCheckpointOptions options = recipe("mxfp8");
  options.plan.exclude = {"."};
  (void)run("out", options);
  EXPECT_EQ(read("out/README.md"), "# Mine\n");
}

TEST_F(ModelCardFolderTest, ATextTooLargeForACardIsCopied) {
  write_model();
  const std::string large((5U << 20), 'x');
  save("model/README.md", large);
  (void)run("out", recipe("mxfp8"));
  EXPECT_EQ(std::filesystem::file_size(root / "out/README.md"), large.size());
}

// Names of tensors are untrusted, and a card is read by a browser in the end.
TEST_F(ModelCardFolderTest, HostileNamesAreText) {
  std::filesystem::create_directory(root / "model");
  const std::string hostile("a|<script>`\n\0.q_proj.weight", 27);
  write_tensors(path("model/model.safetensors"), {random_tensor(hostile, {128, 128}, 1)});
  (void)run("out", recipe("mxfp8"));
  const std::string card = read("out/README.md");
  EXPECT_FALSE(has(card, "<script>"));
  EXPECT_TRUE(has(card, "`a??script????.q_proj.weight`")) << card;
}

}  // namespace
}  // namespace octavo
