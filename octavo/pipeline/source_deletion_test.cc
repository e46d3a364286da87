// Deleting shards of the source while they are quantized (option delete_source): a shard may be the
// only copy of its values, and so may a folder that was made of deleted ones.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

class SourceDeletionTest : public PipelineTest {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    write_model();
    options.threads = 1;
    options.every_row_block = true;
    (void)run("whole", options);
    options.delete_source = true;
  }
  // That of other tests is not a whole Llama, of which nothing may be deleted.
  void write_model() const {
    PipelineTest::write_model();
    save("model/config.json", R"({"model_type": "another", "hidden_size": 256})");
  }
  [[nodiscard]] std::string shard(int number) const {
    return path(text("model/model-0000", number, "-of-00002.safetensors"));
  }
  [[nodiscard]] std::string made(int number) const {
    return path(text("out/model-0000", number, "-of-00002.safetensors"));
  }
  // Calls `then` once, when the first output file has its name.
  [[nodiscard]] QuantizeCheckpointOptions once(const std::function<void()>& then) const {
    QuantizeCheckpointOptions out = options;
    out.on_progress = [this, then, done = false](const Progress&) mutable {
      if (!done && fs::exists(made(1))) {
        done = true;
        then();
      }
      return true;
    };
    return out;
  }
  // Cancelled when the first shard is deleted.
  void stop_after_a_shard() const {
    QuantizeCheckpointOptions stopped = options;
    stopped.on_progress = [this](const Progress&) { return fs::exists(shard(1)); };
    EXPECT_TRUE(
        has(message_of([&] { (void)run("out", stopped); }, ErrorCode::unsupported), "stop"));
    ASSERT_FALSE(fs::exists(shard(1)));
    ASSERT_TRUE(fs::exists(shard(2)));
  }
  [[nodiscard]] QuantizeCheckpointOptions resuming(bool deleting = true) const {
    QuantizeCheckpointOptions out = options;
    out.resume = true;
    out.delete_source = deleting;
    return out;
  }
  static void change_byte(const std::string& file, std::int64_t from_end) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-from_end, std::ios::end);
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(-from_end, std::ios::end);
    stream.put(byte);
  }
  // What is kept of a shard that is about to be deleted: its header, in a file of its size and
  // time.
  static void keep(const fs::path& file, const std::string& folder) {
    const std::string content = content_of(file);
    std::uint64_t header = 8;
    for (int i = 7; i >= 0; --i)
      header += static_cast<std::uint64_t>(
                    static_cast<unsigned char>(content[static_cast<std::size_t>(i)]))
                << (8 * i);
    const fs::path kept = fs::path(folder) / file.filename();
    std::ofstream(kept, std::ios::binary) << content.substr(0, header);
    fs::resize_file(kept, content.size());
    fs::last_write_time(kept, fs::last_write_time(file));
  }
  static std::string notes_of(const CheckpointReport& report) {
    std::string out;
    for (const std::string& note : report.notes) out += note + "\n";
    return out;
  }
  static void touch(const std::string& file) {
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::hours(1));
  }

  QuantizeCheckpointOptions options = recipe("mxfp8");
};

TEST_F(SourceDeletionTest, TheShardsGoAndNothingElse) {
  (void)run("out", options);
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
  EXPECT_FALSE(fs::exists(shard(1)) || fs::exists(shard(2)));
  EXPECT_TRUE(fs::exists(path("model/tokenizer.json")) && fs::exists(path("model/config.json")));
  EXPECT_FALSE(fs::exists(path("out/octavo-source")));
}

// A link that is made while the work goes on, as a cache of models makes them: what it leads to is
// one file with the shard, which must not be emptied.
TEST_F(SourceDeletionTest, AShardThatGetsAnotherNameStays) {
  const std::string second = content_of(shard(2));
  const CheckpointReport report =
      run("out", once([&] { fs::create_hard_link(shard(2), path("blob")); }));
  EXPECT_TRUE(content_of(path("blob")) == second);
  EXPECT_TRUE(content_of(shard(2)) == second);
  EXPECT_FALSE(fs::exists(shard(1)));
  EXPECT_TRUE(has(notes_of(report), "'model-00002-of-00002.safetensors': changed since"));
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
}

// What was made of it is no longer what was read back.
TEST_F(SourceDeletionTest, AnOutputThatChangesKeepsWhatIsLeft) {
  const std::string said = message_of(
      [&] { (void)run("out", once([&] { change_byte(made(1), 1000); })); }, ErrorCode::io);
  EXPECT_TRUE(has(said, "model-00001") && has(said, "since it was read back")) << said;
  EXPECT_TRUE(fs::exists(shard(2)));
  EXPECT_TRUE(fs::exists(path("out/octavo-progress.json")));
}

// Copied, or restored from a backup: other times, the same values. Nothing is deleted by a sample.
TEST_F(SourceDeletionTest, OtherTimesAreNoOtherSourceButNothingIsDeleted) {
  stop_after_a_shard();
  const std::string second = content_of(shard(2));
  touch(shard(2));
  const std::string said = refusal("out", ErrorCode::invalid_argument, resuming());
  EXPECT_TRUE(has(said, "other sizes or times") && has(said, "without option delete_source"))
      << said;
  EXPECT_TRUE(content_of(shard(2)) == second);
  (void)run("out", resuming(false));
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
  EXPECT_TRUE(content_of(shard(2)) == second);
}

TEST_F(SourceDeletionTest, OtherValuesAreAnotherSource) {
  stop_after_a_shard();
  change_byte(shard(2), 1);
  for (const bool deleting : {true, false}) {
    const std::string said = refusal("out", ErrorCode::invalid_argument, resuming(deleting));
    EXPECT_TRUE(has(said, "another source")) << said;
  }
  EXPECT_TRUE(fs::exists(shard(2)));
}

TEST_F(SourceDeletionTest, GoesOnWithoutTheOption) {
  stop_after_a_shard();
  (void)run("out", resuming(false));
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
  EXPECT_TRUE(fs::exists(shard(2)));
}

// Such a folder is all that there is of the deleted shards.
TEST_F(SourceDeletionTest, NoAdviceLosesTheFolder) {
  stop_after_a_shard();
  QuantizeCheckpointOptions other = resuming();
  other.plan.exclude = {"down_proj"};
  QuantizeCheckpointOptions anew = options;
  std::vector<std::string> all{refusal("out", ErrorCode::invalid_argument, other),
                               refusal("out", ErrorCode::io, anew)};
  const std::string record = content_of(path("out/octavo-progress.json"));
  save("out/octavo-progress.json", "{");
  all.push_back(refusal("out", ErrorCode::invalid_argument, resuming()));
  save("out/octavo-progress.json", record);
  fs::create_symlink("/tmp", path("out/link"));
  all.push_back(refusal("out", ErrorCode::io, resuming()));
  fs::remove(path("out/link"));
  fs::create_directory(path("out/octavo-work"));
  all.push_back(refusal("out", ErrorCode::io, resuming()));
  fs::remove(path("out/octavo-work"));
  fs::rename(path("out/octavo-progress.json"), path("elsewhere"));
  all.push_back(refusal("out", ErrorCode::io, resuming()));
  fs::rename(path("elsewhere"), path("out/octavo-progress.json"));
  for (const std::string& said : all) {
    EXPECT_TRUE(has(said, "Do not remove the folder")) << said;
    EXPECT_FALSE(has(said, "or remove") || has(said, "remove this one")) << said;
  }
  (void)run("out", resuming());
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
}

// Of a file that is not what it was, or that the storage does not give for a moment: it cannot be
// made again, and its record stays for when it is back.
TEST_F(SourceDeletionTest, ALostOutputOfADeletedShardIsSaidAtOnce) {
  stop_after_a_shard();
  const std::string record = content_of(path("out/octavo-progress.json"));
  fs::rename(made(1), path("elsewhere"));
  for (const bool deleting : {true, false}) {
    const std::string said = refusal("out", ErrorCode::io, resuming(deleting));
    EXPECT_TRUE(has(said, "was deleted as asked") && has(said, "model-00001")) << said;
    EXPECT_TRUE(content_of(path("out/octavo-progress.json")) == record);
  }
  fs::rename(path("elsewhere"), made(1));
  (void)run("out", resuming());
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
}

// Killed at any time of the end, when the folder is complete: the same call does the rest.
TEST_F(SourceDeletionTest, StoppedAsTheLastOnesGo) {
  for (const bool one_file : {false, true}) {
    SCOPED_TRACE(one_file);
    fs::remove_all(path("model"));
    fs::remove_all(path("out"));
    write_model();
    if (one_file) {
      fs::remove_all(path("model"));
      fs::create_directory(path("model"));
      write_tensors(path("model/model.safetensors"),
                    {random_tensor("model.layers.0.mlp.up_proj.weight", {1280, 256}, 3)});
      save("model/config.json",
           R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})");
    }
    QuantizeCheckpointOptions plain = options;
    plain.delete_source = false;
    (void)run("out", plain);
    const auto whole = contents_of(path("out"));
    fs::create_directory(path("out/octavo-source"));
    bool first = true;
    for (const auto& file : fs::directory_iterator(path("model"))) {
      if (file.path().extension() != ".safetensors") continue;
      keep(file.path(), path("out/octavo-source"));
      if (first) fs::remove(file.path());
      first = false;
    }
    EXPECT_TRUE(run("out", resuming()).was_complete);
    EXPECT_EQ(contents_of(path("out")), whole);
    EXPECT_FALSE(fs::exists(shard(1)) || fs::exists(shard(2)));
    EXPECT_FALSE(fs::exists(path("out/octavo-source")));
  }
}

// A shard whose header was not kept, or that was changed since, is not known to be the one that the
// folder was made of.
TEST_F(SourceDeletionTest, AShardThatIsNotKnownStays) {
  options.delete_source = false;
  (void)run("out", options);
  options.delete_source = true;
  fs::create_directory(path("out/octavo-source"));
  keep(shard(1), path("out/octavo-source"));
  keep(shard(2), path("out/octavo-source"));
  fs::remove(shard(1));
  touch(shard(2));
  const CheckpointReport report = run("out", resuming());
  EXPECT_TRUE(report.was_complete);
  EXPECT_TRUE(has(notes_of(report), "could not be deleted"));
  EXPECT_TRUE(fs::exists(shard(2)));
}

}  // namespace
}  // namespace octavo
