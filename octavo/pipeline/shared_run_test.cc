// Processes that do not fit together, and a folder that is no place for them: one clear error.
#include "octavo/pipeline/plan/shared_run.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/output/shared_folder_internal.h"
#include "octavo/pipeline/shared_testing_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"

namespace octavo {
namespace {

class SharedRunTest : public SharedTest {
 protected:
  // Begins the work and stops after some row blocks.
  void begin(int row_blocks = 6) const {
    QuantizeCheckpointOptions options = sharing(0, 2);
    int calls = 0;
    options.every_row_block = true;
    options.on_progress = [&](const Progress&) { return calls++ < row_blocks; };
    (void)message_of([&] { (void)share(options); }, ErrorCode::unsupported);
  }
  [[nodiscard]] bool has_done_records() const {
    for (const auto& [name, content] : contents_of(path("out/octavo-work")))
      if (name.ends_with(".done.json")) return true;
    return false;
  }
};

TEST_F(SharedRunTest, RanksAndTimesOutOfRange) {
  write_model();
  plan(recipe("fp8"));
  EXPECT_TRUE(has(refused(ErrorCode::invalid_argument, sharing(2, 2)), "0 to 1"));
  EXPECT_TRUE(has(refused(ErrorCode::invalid_argument, sharing(-1, 2)), "rank -1"));
  EXPECT_TRUE(has(refused(ErrorCode::invalid_argument, sharing(0, 0)), "world of 0"));
  EXPECT_TRUE(has(refused(ErrorCode::invalid_argument, sharing(0, 1, 0)), "takeover_after"));
  EXPECT_TRUE(has(refused(ErrorCode::invalid_argument, sharing(0, 1), "x.safetensors"), "folder"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(SharedRunTest, OtherWorldsPlansAndSourcesAreRefused) {
  write_model();
  plan(recipe("fp8"));
  begin();
  ASSERT_TRUE(std::filesystem::exists(path("out/octavo-work")));
  const auto before = contents_of(path("out/octavo-work"));
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 3)), "world 2"));
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 2, 7)), "takeover_after 20"));
  plan(recipe("nvfp4"), "other.json");
  QuantizeCheckpointOptions other = sharing(0, 2);
  other.shared->plan = path("other.json");
  EXPECT_TRUE(has(refused(ErrorCode::io, other), "another plan"));
  EXPECT_TRUE(has(refusal("out", ErrorCode::io, recipe("fp8")), "share a plan"));
  EXPECT_EQ(contents_of(path("out/octavo-work")), before);
  // Another world goes on where it is said that nobody is left.
  QuantizeCheckpointOptions again = sharing(0, 3);
  again.resume = true;
  EXPECT_FALSE(share(again).finished_by_another);
  EXPECT_EQ(contents_of(path("out")), alone(recipe("fp8")));
}

// The same headers with other values, of the smallest tensor alone.
TEST_F(SharedRunTest, AModelThatWasTrainedOnIsRefused) {
  write_model();
  plan(recipe("fp8"));
  begin();
  const CheckpointReader source(path("model"));
  const StoredTensor& norm = source.at("model.layers.1.input_layernorm.weight");
  const safetensors::FileReader& file = source.files()[norm.file];
  std::string content = content_of(file.path());
  content[file.header().data_begin + norm.entry->begin + 100] ^= 1;
  save("model/model-00002-of-00002.safetensors", content);
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(1, 2)), "other values"));
}

// A process died as it made the record: nobody waits for it for ever.
TEST_F(SharedRunTest, ARecordThatCannotBeReadIsMadeAnew) {
  write_model();
  const auto whole = alone(recipe("fp8"));
  plan(recipe("fp8"));
  save("out/octavo-work/run.json", "");
  (void)share(sharing(0, 2));
  EXPECT_EQ(contents_of(path("out")), whole);
  save("two/octavo-work/run.json", "{\"octavo_run\": 1,");
  save("two/octavo-work/run.0.claim", "someone at 1, 0 bytes\n");
  (void)share(sharing(0, 2, 0.2), "two");
  EXPECT_EQ(contents_of(path("two")), whole);
}

// Which run it was cannot be seen any more: another plan's work must not become this one's.
TEST_F(SharedRunTest, ADamagedRecordBesideFinishedWorkIsAnError) {
  write_model();
  plan(recipe("fp8"));
  begin(30);
  ASSERT_TRUE(has_done_records());
  for (const char* const damaged : {"", "{\"octavo_run\": 1,", "[]", "7"}) {
    save("out/octavo-work/run.json", damaged);
    const auto before = contents_of(path("out/octavo-work"));
    const std::string said = refused(ErrorCode::io, sharing(1, 2));
    EXPECT_TRUE(has(said, "run.json") && has(said, "is damaged")) << said;
    EXPECT_EQ(contents_of(path("out/octavo-work")), before);
  }
  // Or it is gone, and amaxes are all that was found so far.
  save("two/octavo-work/amax-00001.done.json", "{}");
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(1, 2), "two"), "damaged or lost"));
  EXPECT_FALSE(std::filesystem::exists(path("two/octavo-work/run.json")));
}

// A digit that was changed would be another scale for every member of a group.
TEST_F(SharedRunTest, ADamagedAmaxIsAnError) {
  write_model();
  plan(recipe("nvfp4"));
  begin(30);
  int damaged = 0;
  for (const auto& file : std::filesystem::directory_iterator(path("out/octavo-work"))) {
    const std::string name = file.path().filename().string();
    if (!name.starts_with("amax-") || !name.ends_with(".done.json")) continue;
    std::string content = content_of(file.path());
    const std::size_t digit = content.find_first_of("123456789", content.find('['));
    ASSERT_NE(digit, std::string::npos) << content;
    content[digit] = content[digit] == '9' ? '8' : '9';
    save("out/octavo-work/" + name, content);
    ++damaged;
  }
  ASSERT_GT(damaged, 0);
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(1, 2)), "cannot be read"));
}

// Something else has the record's name: that is no half a record, and an error.
TEST_F(SharedRunTest, ARecordThatIsNoFileIsAnError) {
  write_model();
  plan(recipe("fp8"));
  const std::string record = path("out/octavo-work/run.json");
  std::filesystem::create_directories(record);
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1)), "run.json"));
  std::filesystem::remove(record);
  ASSERT_EQ(mkfifo(record.c_str(), 0600), 0);
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1)), "run.json"));
  EXPECT_TRUE(std::filesystem::is_fifo(record));
}

// Killed between config.json and the end: whoever comes next clears up.
TEST_F(SharedRunTest, WhatIsLeftOfACompleteRunGoes) {
  write_model();
  plan(recipe("fp8"));
  const auto whole = alone(recipe("fp8"));
  const auto leave = [&] {
    save("out/octavo-work/run.json", "{}");
    save("out/octavo-work/finish.0.claim", "someone at 1, 0 bytes\n");
    save("out/.model-00001-of-00009.safetensors.0123-7-89.octavo-tmp", "half");
  };
  (void)share(sharing(0, 1));
  leave();
  EXPECT_TRUE(share(sharing(0, 1)).was_complete);
  EXPECT_EQ(contents_of(path("out")), whole);
  EXPECT_FALSE(std::filesystem::exists(path("out/octavo-work")));
  leave();
  QuantizeCheckpointOptions one = recipe("fp8");
  one.plan.shard_bytes = 250'000;
  one.resume = true;
  EXPECT_TRUE(run("out", one).was_complete);
  EXPECT_EQ(contents_of(path("out")), whole);
  EXPECT_FALSE(std::filesystem::exists(path("out/octavo-work")));
}

// Files that are copied are the plan's to say: one process that follows links would copy others.
TEST_F(SharedRunTest, LinksAreFollowedByAllOrNone) {
  write_model();
  plan(recipe("fp8"));
  QuantizeCheckpointOptions options = sharing(0, 1);
  options.follow_links = true;
  EXPECT_TRUE(has(refused(ErrorCode::invalid_argument, options), "follow_links"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(SharedRunTest, InsideTheModelsFolder) {
  write_model();
  const auto whole = alone(recipe("fp8"));
  plan(recipe("fp8"));
  QuantizeCheckpointOptions options = sharing(0, 2);
  int calls = 0;
  options.every_row_block = true;
  options.on_progress = [&](const Progress&) { return calls++ < 6; };
  EXPECT_TRUE(has(refused(ErrorCode::unsupported, options, "model/out"), "stopped"));
  ASSERT_TRUE(std::filesystem::exists(path("model/out/octavo-work")));
  EXPECT_FALSE(share(sharing(1, 2), "model/out").finished_by_another);
  EXPECT_EQ(contents_of(path("model/out")), whole);
  EXPECT_TRUE(share(sharing(1, 2), "model/out").was_complete);
}

TEST_F(SharedRunTest, AFolderWithOtherFilesIsRefused) {
  write_model();
  plan(recipe("fp8"));
  save("out/notes.txt", "mine");
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1)), "not empty"));
  EXPECT_EQ(contents_of(path("out")).size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(path("out/octavo-work")));
  save("half/octavo-progress.json", "{}");
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1), "half"), "without a plan"));
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1), "model"), "where the source is"));
  std::filesystem::create_directory(path("linked"));
  std::filesystem::create_symlink("/tmp", path("linked/octavo-work"));
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1), "linked"), "link"));
}

TEST_F(SharedRunTest, AFolderThatCannotBeWrittenOrVanishes) {
  write_model();
  plan(recipe("fp8"));
  if (geteuid() != 0) {
    std::filesystem::create_directory(path("read"));
    std::filesystem::permissions(
        path("read"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
    EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1), "read"), "may write"));
    std::filesystem::permissions(path("read"), std::filesystem::perms::owner_all);
  }
  EXPECT_TRUE(has(refused(ErrorCode::io, sharing(0, 1), "plan.json"), "could not make"));
  QuantizeCheckpointOptions options = sharing(0, 2);
  options.every_row_block = true;
  int calls = 0;
  options.on_progress = [&](const Progress&) {
    if (calls++ == 5) std::filesystem::remove_all(path("out"));
    return true;
  };
  EXPECT_NE(refused(ErrorCode::io, options), "");
  EXPECT_FALSE(std::filesystem::exists(path("out/config.json")));
}

// A file that was damaged after it was finished is written again by the last process.
TEST_F(SharedRunTest, ADamagedFileIsWrittenAgain) {
  write_model();
  const auto whole = alone(recipe("fp8"));
  plan(recipe("fp8"));
  begin(30);
  std::string damaged;
  for (const auto& [name, content] : contents_of(path("out")))
    if (name.ends_with(".safetensors")) damaged = name;
  ASSERT_NE(damaged, "");
  std::filesystem::resize_file(path("out/" + damaged), 100);
  (void)share(sharing(1, 2));
  EXPECT_EQ(contents_of(path("out")), whole);
}

// Taken over while its last bytes went to disk: the file is the other's to finish, and what is
// under its name stays.
TEST_F(SharedRunTest, AFileThatWasTakenOverIsNotFinished) {
  write_model();
  std::filesystem::create_directory(path("out"));
  const CheckpointReader source(path("model"));
  const QuantizePlan planned = plan_quantize(source, recipe("fp8-block").plan);
  const SharedRun shared{"", 0, 2, 60};
  SharedFolder folder(path("out"), source, planned.files, {"plan", "sample"}, shared, false);
  const std::string file = "out/" + planned.files[0];
  save(file, "of the one that has it now");
  const std::vector<float> amaxes;
  bool asked = false;
  const FileShare share{.file = 0, .group_amaxes = &amaxes, .is_still_mine = [&] {
                          asked = true;
                          return false;
                        }};
  QuantizeCheckpointOptions options;
  options.threads = 1;
  const std::string said = message_of(
      [&] {
        (void)stream_checkpoint(
            source, planned, options,
            {.folder = &folder, .file = {}, .source = source_identity(source), .share = &share});
      },
      ErrorCode::unsupported);
  EXPECT_TRUE(asked && has(said, "another process has")) << said;
  EXPECT_EQ(content_of(path(file)), "of the one that has it now");
  EXPECT_FALSE(folder.has_done("file-00001"));
}

TEST_F(SharedRunTest, ConvertsByAPlan) {
  write_model();
  QuantizeCheckpointOptions nvfp4 = recipe("nvfp4");
  nvfp4.plan.shard_bytes = 250'000;
  (void)run("ct", nvfp4);
  (void)convert_checkpoint(path("ct"), path("alone"), Dialect::modelopt);
  const CheckpointReader source(path("ct"));
  ConvertCheckpointResult planned;
  std::string content;
  write_plan_file(source, plan_conversion(source, Dialect::modelopt, planned),
                  {.work = kPlanOfConvert}, [&](std::string_view piece) { content += piece; });
  save("convert.json", content);
  ConvertCheckpointOptions options;
  options.shared = SharedRun{path("convert.json"), 1, 2};
  const auto result = convert_checkpoint("", path("out"), Dialect::octavo, options);
  EXPECT_FALSE(result.finished_by_another);
  EXPECT_GT(result.files_written, 2);
  EXPECT_EQ(contents_of(path("out")), contents_of(path("alone")));
  EXPECT_TRUE(convert_checkpoint("", path("out"), Dialect::octavo, options).was_complete);
}

}  // namespace
}  // namespace octavo
