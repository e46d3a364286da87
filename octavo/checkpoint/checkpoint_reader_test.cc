#include "octavo/checkpoint/checkpoint_reader.h"

#include <gtest/gtest.h>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/checkpoint/shard_index.h"

namespace octavo {
namespace {

class CheckpointReaderTest : public CheckpointTest {
 protected:
  // Two shards, a.x and a.y in the first, b in the second.
  void SetUp() override {
    CheckpointTest::SetUp();
    std::filesystem::create_directory(root / "model");
    write_tensors(path("model/one.safetensors"),
                  {random_tensor("a.y", {3}, 1), random_tensor("a.x", {2, 2}, 2)});
    write_tensors(path("model/two.safetensors"), {random_tensor("b", {4}, 3)});
  }
  void index(std::string_view map, std::string_view total = "24") const {
    save("model/model.safetensors.index.json",
         text(R"({"metadata": {"total_size": )", total, R"(}, "weight_map": {)", map, "}}"));
  }
  [[nodiscard]] std::string refusal(ErrorCode code = ErrorCode::invalid_argument) const {
    return message_of([&] { CheckpointReader reader(path("model")); }, code);
  }
  [[nodiscard]] static std::string notes_of(const CheckpointReader& reader) {
    std::string notes;
    for (const std::string& note : reader.notes()) notes += note + "\n";
    return notes;
  }
  static constexpr std::string_view kRight =
      R"("a.x": "one.safetensors", "a.y": "one.safetensors", "b": "two.safetensors")";
};

TEST_F(CheckpointReaderTest, ReadsShards) {
  index(kRight, "22");
  save("model/config.json", R"({"hidden_size": 2})");
  save("model/tokenizer.json", "{}");
  save("model/pytorch_model.bin", "old");
  save("model/extra.safetensors", "not looked at");
  const CheckpointReader reader(path("model"));
  ASSERT_EQ(reader.tensors().size(), 3U);
  EXPECT_EQ(reader.tensors()[0].name(), "a.x");
  EXPECT_EQ(reader.tensors()[2].name(), "b");
  EXPECT_EQ(reader.nbytes(), 22U);
  EXPECT_EQ(reader.config()["hidden_size"].integer_or(0), 2);
  EXPECT_EQ(parse_json(reader.config_text(), "text"), reader.config());
  EXPECT_TRUE(reader.hf_quant_config().is_null());
  EXPECT_EQ(reader.other_files(), std::vector<std::string>{"tokenizer.json"});
  EXPECT_EQ(reader.notes().size(), 2U);  // pytorch_model.bin, extra.safetensors
  EXPECT_EQ(reader.find("a.z"), nullptr);
  std::vector<std::byte> bytes(2);
  reader.read(reader.at("a.y"), 4, bytes);
  const std::vector<std::byte> whole = random_tensor("a.y", {3}, 1).bytes;
  EXPECT_EQ(bytes, std::vector(whole.begin() + 4, whole.end()));
  EXPECT_TRUE(has(message_of([&] { (void)reader.at("q"); }, ErrorCode::invalid_argument), "'q'"));
}

TEST_F(CheckpointReaderTest, AFolderWithTheNameOfAShardIsNoShard) {
  index(kRight);
  std::filesystem::remove(path("model/two.safetensors"));
  std::filesystem::create_directory(path("model/two.safetensors"));
  EXPECT_TRUE(has(refusal(ErrorCode::io), "names 'two.safetensors', which is not in"));
}

TEST_F(CheckpointReaderTest, FindsWhatSubfoldersHave) {
  index(kRight, "22");
  save("model/1_Pooling/config.json", "{}");
  save("model/2_Dense/config.json", R"({"in_features": 2})");
  save("model/2_Dense/model.safetensors", "a module");
  save("model/onnx/model.onnx", "another form");
  save("model/original/w.safetensors", "another form");
  save("model/.git/config", "hidden");
  save("model/out/config.json", R"({"model_type": "llama"})");
  save("model/out/tokenizer.json", "{}");
  save("model/a/b/c/d/e/deep.txt", "any depth");
  std::string far = "model/far";
  for (int i = 0; i < 20; ++i) far += "/x";
  save(far + "/deep.txt", "too deep");
  const CheckpointReader reader(path("model"), OtherFiles::copied);
  EXPECT_EQ(reader.other_files(),
            (std::vector<std::string>{"1_Pooling/config.json", "2_Dense/config.json",
                                      "2_Dense/model.safetensors", "a/b/c/d/e/deep.txt"}));
  EXPECT_TRUE(has(notes_of(reader), "2 files of other weights") &&
              has(notes_of(reader), "'out' is a model") &&
              has(notes_of(reader), "folders deep and is left out"))
      << notes_of(reader);
  std::filesystem::remove_all(path("model/onnx"));
  EXPECT_TRUE(
      has(notes_of(CheckpointReader(path("model"))), "1 file of other weights in subfolders is"));
}

TEST_F(CheckpointReaderTest, MessagesAboutAConfigNameTheFolder) {
  index(kRight, "22");
  save("model/config.json", "{");
  EXPECT_TRUE(has(refusal(), path("model")) && has(refusal(), "config.json")) << refusal();
  for (const char* const name : {"config.json", "hf_quant_config.json"})
    for (const char* const other : {"[1, 2]", "null", "\"llama\"", "7"}) {
      save("model/config.json", "{}");
      save(text("model/", name), other);
      EXPECT_TRUE(has(refusal(), path("model")) && has(refusal(), text(name, " holds no JSON")))
          << other << ": " << refusal();
    }
}

TEST_F(CheckpointReaderTest, ReadsOneFile) {
  const CheckpointReader reader(path("model/two.safetensors"));
  EXPECT_FALSE(reader.is_folder());
  EXPECT_EQ(reader.tensors().size(), 1U);
  EXPECT_TRUE(reader.other_files().empty());
}

TEST_F(CheckpointReaderTest, FindsEveryInconsistencyOfAnIndex) {
  index(R"("a.x": "one.safetensors", "a.y": "two.safetensors", "b": "two.safetensors")");
  EXPECT_TRUE(has(refusal(), "'a.y'")) << "in another shard than it says";
  index(R"("a.x": "one.safetensors", "a.q": "one.safetensors", "b": "two.safetensors")");
  EXPECT_TRUE(has(refusal(), "nowhere"));
  index(R"("a.x": "one.safetensors", "b": "three.safetensors")");
  EXPECT_TRUE(has(refusal(ErrorCode::io), "three.safetensors"));
  for (const char* const name : {"../one.safetensors", "/etc/passwd", "..", ".", "",
                                 "sub/one.safetensors", "one.safetensors\\u0000"}) {
    index(text(R"("a.x": ")", name, "\""));
    EXPECT_TRUE(has(refusal(), "plain name")) << name;
  }
  index(R"("a.x": 3)");
  EXPECT_TRUE(has(refusal(), "no name of a file"));
  save("model/model.safetensors.index.json", "{\"weight_map\": []}");
  EXPECT_TRUE(has(refusal(), "weight_map"));
  save("model/model.safetensors.index.json", "{\"weight_map\": {");
  EXPECT_FALSE(refusal().empty());
}

TEST_F(CheckpointReaderTest, AnIndexThatLeavesShardsOutIsNotFollowed) {
  index("");
  EXPECT_TRUE(has(refusal(), "empty weight_map")) << refusal();
  const auto shard = [](int number, int of, std::string_view prefix = "model") {
    return text(prefix, "-0000", number, "-of-0000", of, ".safetensors");
  };
  const auto put = [&](const std::string& file, const std::string& tensor) {
    write_tensors(path("model/" + file), {random_tensor(tensor, {4}, 3)});
  };
  put(shard(1, 3), "p");
  put(shard(3, 3), "r");
  index(text(R"("p": ")", shard(1, 3), R"(", "r": ")", shard(3, 3), "\""));
  EXPECT_TRUE(has(refusal(), "2 of 3 files") && has(refusal(), "not number 2")) << refusal();
  put(shard(2, 3), "q");
  EXPECT_TRUE(has(refusal(), "not number 2")) << "it is there and not named";
  index(text(R"("p": ")", shard(1, 3), R"(", "q": ")", shard(2, 3), R"(", "r": ")", shard(3, 3),
             "\""));
  EXPECT_EQ(refusal(), "");
  put(shard(1, 1, "consolidated"), "p");  // the same weights in another naming
  EXPECT_EQ(refusal(), "");
  put(shard(2, 2), "s");  // left over from another model
  EXPECT_TRUE(has(refusal(), shard(2, 2)) && has(refusal(), "does not name")) << refusal();
  std::filesystem::remove(path("model/" + shard(2, 2)));
  // Numbered from 0, as some writers do.
  put(shard(0, 2, "part"), "u");
  put(shard(1, 2, "part"), "v");
  index(text(R"("u": ")", shard(0, 2, "part"), R"(", "v": ")", shard(1, 2, "part"), "\""));
  EXPECT_EQ(refusal(), "");
}

TEST_F(CheckpointReaderTest, OneShardOfSeveralIsNoModel) {
  std::filesystem::remove(path("model/two.safetensors"));
  std::filesystem::rename(path("model/one.safetensors"),
                          path("model/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(has(refusal(), "1 of 2 files")) << refusal();
}

TEST_F(CheckpointReaderTest, ATensorInTwoShardsIsAnError) {
  write_tensors(path("model/two.safetensors"),
                {random_tensor("b", {4}, 3), random_tensor("a.x", {1}, 3)});
  index(kRight);
  EXPECT_TRUE(has(refusal(), "expected it once"));
}

TEST_F(CheckpointReaderTest, OddThingsAreNotes) {
  index(R"("a.x": "one.safetensors", "b": "two.safetensors")", "7");
  const CheckpointReader reader(path("model"));
  ASSERT_EQ(reader.notes().size(), 2U);
  EXPECT_TRUE(has(reader.notes()[0], "leaves out 1"));
  EXPECT_TRUE(has(reader.notes()[1], "total_size 7"));
}

TEST_F(CheckpointReaderTest, AFolderMustSayWhatItIs) {
  EXPECT_TRUE(has(refusal(), "no index"));
  std::filesystem::remove(root / "model/two.safetensors");
  EXPECT_EQ(refusal(), "");  // one file is enough
  std::filesystem::remove(root / "model/one.safetensors");
  EXPECT_TRUE(has(refusal(ErrorCode::io), "no .safetensors"));
  EXPECT_TRUE(has(message_of([&] { CheckpointReader reader(path("nothing")); }, ErrorCode::io),
                  "could not open"));
}

TEST_F(CheckpointReaderTest, TwoModelsInAFolderAreAnError) {
  index(kRight);
  write_tensors(path("model/model.safetensors"), {random_tensor("b", {4}, 3)});
  EXPECT_TRUE(has(refusal(), "remove one"));
}

TEST_F(CheckpointReaderTest, AConfigIsBoundedAndChecked) {
  index(kRight);
  save("model/config.json", std::string((8U << 20) + 1, ' '));
  EXPECT_TRUE(has(refusal(), "expected at most"));
  save("model/config.json", "{");
  EXPECT_FALSE(refusal().empty());
}

TEST(ShardIndex, ReadsBackWhatItWrites) {
  const ShardIndex index{{"a.safetensors", "b.safetensors"}, {{"x", 1}, {"y\n\"", 0}}, 12};
  EXPECT_EQ(parse_shard_index(write_shard_index(index), "index"), index);
}

}  // namespace
}  // namespace octavo
