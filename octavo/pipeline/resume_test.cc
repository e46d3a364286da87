// Resume: what a later call reuses of an earlier call's folder, and its checks of a complete one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

class ResumeTest : public PipelineTest {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    write_model();
    options.threads = 1;
  }
  // Cancelled when its first file is finished.
  void stop_after_a_file() const {
    QuantizeCheckpointOptions stopped = options;
    stopped.every_row_block = true;
    stopped.on_progress = [&](const Progress&) { return !std::filesystem::exists(first_shard()); };
    EXPECT_THROW((void)run("out", stopped), Error);
    ASSERT_TRUE(std::filesystem::exists(first_shard()));
    ASSERT_FALSE(std::filesystem::exists(path("out/config.json")));
  }
  [[nodiscard]] std::string first_shard() const {
    return path("out/model-00001-of-00002.safetensors");
  }
  [[nodiscard]] QuantizeCheckpointOptions resuming() const {
    QuantizeCheckpointOptions out = options;
    out.resume = true;
    return out;
  }
  // Changes a byte of a tensor and nothing else of the file.
  void damage(const std::string& file, const std::string& tensor, std::uint64_t at) const {
    std::uint64_t place = 0;
    {
      const safetensors::FileReader reader(path(file));
      place = reader.header().data_begin + reader.at(tensor).begin + at;
    }
    std::fstream stream(path(file), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(place));
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(place));
    stream.put(byte);
  }
  // The source bytes that a resumed call had to read.
  [[nodiscard]] std::uint64_t work_of_resuming() const {
    std::uint64_t bytes = 0;
    QuantizeCheckpointOptions watched = resuming();
    watched.on_progress = [&](const Progress& at) {
      bytes = at.bytes_total;
      return true;
    };
    (void)run("out", watched);
    return bytes;
  }

  QuantizeCheckpointOptions options = recipe("mxfp8");
};

TEST_F(ResumeTest, AFinishedFileIsKeptWhereItsBytesAreWhatWasWritten) {
  (void)run("whole", options);
  stop_after_a_file();
  const std::uint64_t rest = work_of_resuming();
  EXPECT_LT(rest, CheckpointReader(path("model")).nbytes() * 2 / 3);
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
}

// A copy of the model, on another machine or from a backup, has other times.
TEST_F(ResumeTest, GoesOnWithACopyOfTheSource) {
  (void)run("whole", options);
  stop_after_a_file();
  std::filesystem::rename(path("model"), path("first"));
  std::filesystem::copy(path("first"), path("model"));
  EXPECT_LT(work_of_resuming(), CheckpointReader(path("model")).nbytes() * 2 / 3);
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
}

// Damage that leaves size, time and header unchanged, such as a lost page.
TEST_F(ResumeTest, AFinishedFileWithOtherBytesIsWrittenAgain) {
  (void)run("whole", options);
  stop_after_a_file();
  struct stat before {};
  ASSERT_EQ(stat(first_shard().c_str(), &before), 0);
  {
    std::fstream file(first_shard(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1000, std::ios::end);
    file.put('\x5A').put('\xA5');
  }
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, first_shard().c_str(), times, 0), 0);
  (void)run("out", resuming());
  EXPECT_EQ(contents_of(path("out")), contents_of(path("whole")));
}

TEST_F(ResumeTest, LinksInTheFolderAreRefused) {
  for (const char* const name :
       {"config.json", "model-00002-of-00002.safetensors", "tokenizer.json", "other", "sub/link"}) {
    std::filesystem::remove_all(path("out"));
    stop_after_a_file();
    save("precious", "mine");
    std::filesystem::create_directories(path("out/sub"));
    std::filesystem::create_symlink(path("precious"), path(text("out/", name)));
    const std::string message = refusal("out", ErrorCode::io, resuming());
    EXPECT_TRUE(has(message, "link") && has(message, name)) << message;
    EXPECT_EQ(content_of(path("precious")), "mine");
  }
}

TEST_F(ResumeTest, ACompleteFolderIsLeftAsItIs) {
  const CheckpointReport made = run("out", options);
  EXPECT_FALSE(made.was_complete);
  const auto before = contents_of(path("out"));
  const CheckpointReport again = run("out", resuming());
  EXPECT_TRUE(again.was_complete);
  EXPECT_EQ(contents_of(path("out")), before);
  EXPECT_EQ(again.bytes_after, made.bytes_after);
  EXPECT_EQ(again.bits_per_weight, made.bits_per_weight);
  EXPECT_EQ(again.provenance, made.provenance);
  ASSERT_EQ(again.tensors.size(), made.tensors.size());
  for (std::size_t i = 0; i < made.tensors.size(); ++i) {
    EXPECT_EQ(again.tensors[i].name, made.tensors[i].name);
    EXPECT_EQ(again.tensors[i].bytes_after, made.tensors[i].bytes_after);
    EXPECT_FALSE(again.tensors[i].measured);
  }
  EXPECT_TRUE(has(again.notes.back(), "was complete"));
  QuantizeCheckpointOptions other = resuming();
  other.plan.exclude = {"down_proj"};
  EXPECT_TRUE(has(refusal("out", ErrorCode::io, other), "other options"));
  std::filesystem::remove(path("out/model-00002-of-00002.safetensors"));
  EXPECT_TRUE(has(refusal("out", ErrorCode::io, resuming()), "model-00002"));
}

// Another model of the same shapes, or a further-trained one: names, sizes and options are equal.
TEST_F(ResumeTest, ACompleteFolderOfAnotherSourceIsRefused) {
  (void)run("out", options);
  const auto before = contents_of(path("out"));
  std::filesystem::copy(path("model"), path("first"));
  for (const char* const tensor :
       {"model.layers.1.mlp.up_proj.weight", "model.layers.1.input_layernorm.weight"}) {
    std::filesystem::remove_all(path("model"));
    std::filesystem::copy(path("first"), path("model"));
    damage("model/model-00002-of-00002.safetensors", tensor, 3);
    const std::string message = refusal("out", ErrorCode::io, resuming());
    EXPECT_TRUE(has(message, "made from another source")) << message;
    EXPECT_EQ(contents_of(path("out")), before);
  }
  // The content counts, not its modification time.
  std::filesystem::remove_all(path("model"));
  std::filesystem::copy(path("first"), path("model"));
  EXPECT_TRUE(run("out", resuming()).was_complete);
}

TEST_F(ResumeTest, ACompleteFolderWithOtherBytesIsRefused) {
  for (const bool one_file : {false, true}) {
    std::filesystem::remove_all(path("out"));
    options.plan.shard_bytes = one_file ? std::uint64_t{1} << 30 : 0;
    (void)run("out", options);
    const std::string file = one_file ? "model.safetensors" : "model-00002-of-00002.safetensors";
    damage("out/" + file, "model.layers.1.mlp.up_proj.weight_scale", 17);
    const std::string message = refusal("out", ErrorCode::io, resuming());
    EXPECT_TRUE(has(message, file) && has(message, "not what was written")) << message;
  }
}

// Non-weight files are compared with what would be written.
TEST_F(ResumeTest, OtherFilesOfACompleteFolderAreChecked) {
  save("model/1_Pooling/config.json", "{}");
  for (const Dialect target : {Dialect::compressed_tensors, Dialect::modelopt}) {
    options.plan.target = target;
    std::filesystem::remove_all(path("out"));
    (void)run("out", options);
    const auto whole = contents_of(path("out"));
    std::vector<std::string> names{"tokenizer.json", "model.safetensors.index.json",
                                   "1_Pooling/config.json"};
    if (target == Dialect::modelopt) names.emplace_back("hf_quant_config.json");
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      const std::string kept = content_of(path("out/" + name));
      std::filesystem::remove(path("out/" + name));
      const CheckpointReport again = run("out", resuming());
      EXPECT_TRUE(again.was_complete);
      EXPECT_EQ(again.written_again, std::vector<std::string>{name});
      EXPECT_TRUE(has(again.notes.back(), name)) << again.notes.back();
      EXPECT_EQ(content_of(path("out/" + name)), kept);
      EXPECT_EQ(contents_of(path("out")), whole);
      for (const std::string& wrong : {kept + " ", kept.substr(0, kept.size() - 1), "x" + kept}) {
        save("out/" + name, wrong);
        const std::string message = refusal("out", ErrorCode::io, resuming());
        EXPECT_TRUE(has(message, name) && has(message, "not what would be written")) << message;
        EXPECT_EQ(content_of(path("out/" + name)), wrong);
      }
      save("out/" + name, kept);
    }
    // Keys of config.json besides the provenance.
    const std::string config = content_of(path("out/config.json"));
    std::string other = config;
    other.replace(other.find("256"), 3, "255");
    save("out/config.json", other);
    EXPECT_TRUE(has(refusal("out", ErrorCode::io, resuming()), "'config.json'"));
    save("out/config.json", config);
    // A folder in place of a file, and a link to the same bytes.
    std::filesystem::rename(path("out/tokenizer.json"), path("elsewhere.json"));
    std::filesystem::create_directory(path("out/tokenizer.json"));
    EXPECT_TRUE(has(refusal("out", ErrorCode::io, resuming()), "'tokenizer.json'"));
    std::filesystem::remove(path("out/tokenizer.json"));
    std::filesystem::rename(path("elsewhere.json"), path("out/tokenizer.json"));
    std::filesystem::rename(path("out/tokenizer.json"), path("elsewhere.json"));
    std::filesystem::create_symlink(path("elsewhere.json"), path("out/tokenizer.json"));
    EXPECT_TRUE(has(refusal("out", ErrorCode::io, resuming()), "link"));
    std::filesystem::remove(path("out/tokenizer.json"));
    EXPECT_EQ(run("out", resuming()).written_again, std::vector<std::string>{"tokenizer.json"});
  }
}

// If one file is refused, no other file is written.
TEST_F(ResumeTest, ACompleteFolderThatIsRefusedStaysAsItIs) {
  (void)run("out", options);
  std::filesystem::remove(path("out/tokenizer.json"));
  save("out/model.safetensors.index.json", "{}");
  (void)refusal("out", ErrorCode::io, resuming());
  EXPECT_FALSE(std::filesystem::exists(path("out/tokenizer.json")));
}

// The checksum covers the tensors' bytes; their names are in the header.
TEST_F(ResumeTest, ACompleteFolderWithAnotherHeaderIsRefused) {
  (void)run("out", options);
  std::string bytes = content_of(first_shard());
  bytes.replace(bytes.find("q_proj"), 6, "x_proj");
  save("out/model-00001-of-00002.safetensors", bytes);
  EXPECT_TRUE(has(refusal("out", ErrorCode::io, resuming()), "not what was written"));
}

TEST_F(ResumeTest, SoAreThoseOfACompleteConversion) {
  (void)run("out", recipe("nvfp4"));
  const auto convert = [&](bool resume) {
    return convert_checkpoint(path("out"), path("mo"), Dialect::modelopt, {.resume = resume});
  };
  (void)convert(false);
  const auto whole = contents_of(path("mo"));
  std::filesystem::remove(path("mo/tokenizer.json"));
  std::filesystem::remove(path("mo/hf_quant_config.json"));
  EXPECT_EQ(convert(true).written_again,
            (std::vector<std::string>{"tokenizer.json", "hf_quant_config.json"}));
  EXPECT_EQ(contents_of(path("mo")), whole);
  save("mo/hf_quant_config.json", "{}");
  const std::string message = message_of([&] { (void)convert(true); }, ErrorCode::io);
  EXPECT_TRUE(message.starts_with("[convert]") && has(message, "hf_quant_config.json")) << message;
}

// Equal codes do not imply equal scales.
TEST_F(ResumeTest, ACompleteConversionOfAnotherSourceIsRefused) {
  (void)run("out", options);
  const auto convert = [&](bool resume) {
    return convert_checkpoint(path("out"), path("octavo"), Dialect::octavo, {.resume = resume});
  };
  (void)convert(false);
  EXPECT_TRUE(convert(true).was_complete);
  damage("out/model-00001-of-00002.safetensors", "model.layers.0.mlp.up_proj.weight_scale", 5);
  const std::string message = message_of([&] { (void)convert(true); }, ErrorCode::io);
  EXPECT_TRUE(has(message, "[convert]") && has(message, "made from another source")) << message;
}

TEST_F(ResumeTest, ConversionsTooAndEarlierProvenanceStays) {
  (void)run("out", recipe("nvfp4"));
  const auto convert = [&](bool resume, Dialect to = Dialect::modelopt) {
    return convert_checkpoint(path("out"), path("mo"), to, {.resume = resume});
  };
  EXPECT_FALSE(convert(false).was_complete);
  const auto before = contents_of(path("mo"));
  EXPECT_TRUE(convert(true).was_complete);
  EXPECT_THROW((void)convert(true, Dialect::octavo), Error);
  EXPECT_EQ(contents_of(path("mo")), before);
  (void)dequantize_checkpoint(path("mo"), path("plain"), DType::bf16);
  EXPECT_TRUE(
      dequantize_checkpoint(path("mo"), path("plain"), DType::bf16, {.resume = true}).was_complete);
  const CheckpointReader first(path("out")), plain(path("plain"));
  const Json& said = first.config()["octavo"];
  const Json& says = plain.config()["octavo"];
  for (const char* const key : {"version", "recipe", "rule", "policy", "source_hash"}) {
    EXPECT_FALSE(said[key].is_null()) << key;
    EXPECT_EQ(says[key], said[key]) << key;
  }
  ASSERT_EQ(says["steps"].elements().size(), 2U);
  EXPECT_EQ(says["steps"].elements()[0]["work"].string_or(""), "convert to modelopt");
  EXPECT_EQ(says["steps"].elements()[1]["work"].string_or(""), "dequantize to bfloat16");
  EXPECT_NE(says["steps"].elements()[1]["source_hash"], said["source_hash"]);
  // And when it is quantized again.
  (void)quantize_checkpoint(path("plain"), path("again"), recipe("mxfp8"));
  EXPECT_EQ(CheckpointReader(path("again")).config()["octavo"]["from"], says);
}

// Files that loaders would read and octavo did not write.
TEST_F(ResumeTest, ACompleteFolderWithFilesThatLoadersReadIsRefused) {
  options.plan.shard_bytes = std::uint64_t{1} << 30;
  (void)run("out", options);
  const auto whole = contents_of(path("out"));
  for (const char* const name : {"hf_quant_config.json", "model.safetensors.index.json",
                                 "extra.safetensors", "other.safetensors.index.json"}) {
    save(text("out/", name), R"({"weight_map": {}})");
    const std::string message = refusal("out", ErrorCode::io, resuming());
    EXPECT_TRUE(has(message, name) && has(message, "remove it")) << message;
    std::filesystem::remove(path(text("out/", name)));
  }
  save("out/notes.md", "mine");  // no loader reads it
  EXPECT_TRUE(run("out", resuming()).was_complete);
  std::filesystem::remove(path("out/notes.md"));
  // Reading a pipe would block until it has a writer.
  std::filesystem::remove(path("out/tokenizer.json"));
  ASSERT_EQ(mkfifo(path("out/tokenizer.json").c_str(), 0600), 0);
  EXPECT_TRUE(has(refusal("out", ErrorCode::io, resuming()), "'tokenizer.json'"));
  std::filesystem::remove(path("out/tokenizer.json"));
  EXPECT_EQ(run("out", resuming()).written_again, std::vector<std::string>{"tokenizer.json"});
  EXPECT_EQ(contents_of(path("out")), whole);
}

}  // namespace
}  // namespace octavo
