// What a quantized checkpoint has besides weights: files of the source, with their permissions.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "octavo/base/file_error.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

class CopiedFilesTest : public PipelineTest {
 protected:
  [[nodiscard]] unsigned mode_of(const std::string& name) const {
    struct stat status {};
    EXPECT_EQ(stat(path(name).c_str(), &status), 0) << name;
    return status.st_mode & 0777;
  }
};

TEST_F(CopiedFilesTest, ASnapshotOfACacheKeepsItsSubfolders) {
  write_model();
  save("model/1_Pooling/config.json", R"({"pooling": 1})");
  fs::create_directories(root / "models--x/snapshots");
  fs::create_directories(root / "models--x/blobs");
  fs::rename(path("model"), path("models--x/snapshots/1"));
  int blob = 0;
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path("models--x/snapshots/1")))
    if (entry.is_regular_file()) files.push_back(entry.path());
  for (const fs::path& file : files) {
    const fs::path target = root / "models--x/blobs" / std::to_string(blob++);
    fs::rename(file, target);
    fs::create_symlink(target.lexically_relative(file.parent_path()), file);
  }
  const CheckpointReport report =
      quantize_checkpoint(path("models--x/snapshots/1"), path("out"), recipe("fp8-channel"));
  EXPECT_EQ(report.notes, std::vector<std::string>());
  EXPECT_EQ(content_of(path("out/1_Pooling/config.json")), R"({"pooling": 1})");
  EXPECT_FALSE(fs::is_symlink(path("out/1_Pooling/config.json")));
  (void)dequantize_checkpoint(path("out"), path("plain"), DType::bf16);
  EXPECT_EQ(content_of(path("plain/1_Pooling/config.json")), R"({"pooling": 1})");
}

TEST_F(CopiedFilesTest, ALinkOutOfTheFolderIsRefusedBeforeTheWork) {
  write_model();
  save("secret", "s");
  fs::create_symlink("../secret", path("model/vocab.json"));
  EXPECT_TRUE(has(refusal("out", ErrorCode::io), "option follow_links"));
  EXPECT_FALSE(fs::exists(path("out")));
  QuantizeCheckpointOptions options;
  options.follow_links = true;
  (void)run("out", options);
  EXPECT_EQ(content_of(path("out/vocab.json")), "s");
  // The same of a conversion, whose error stays one about a file.
  fs::create_symlink("../secret", path("out/more.json"));
  try {
    (void)dequantize_checkpoint(path("out"), path("plain"), DType::bf16);
    FAIL() << "the link is not refused";
  } catch (const FileError& error) {
    EXPECT_EQ(error.file(), path("out/more.json"));
  }
  EXPECT_FALSE(fs::exists(path("plain")));
  (void)dequantize_checkpoint(path("out"), path("plain"), DType::bf16, {.follow_links = true});
  EXPECT_EQ(content_of(path("plain/more.json")), "s");
}

// The weights too: they are the source's, in fewer bits.
TEST_F(CopiedFilesTest, PermissionsAreNotWidened) {
  write_model();
  chmod(path("model/tokenizer.json").c_str(), 0600);
  chmod(path("model/config.json").c_str(), 0640);
  chmod(path("model/model-00001-of-00002.safetensors").c_str(), 0440);
  chmod(path("model/model-00002-of-00002.safetensors").c_str(), 0664);
  save("model/vocab.json", "x");
  chmod(path("model/vocab.json").c_str(), 0444);
  const mode_t before = umask(0);
  (void)run("out");
  umask(before);
  EXPECT_EQ(mode_of("out/tokenizer.json"), 0600U);
  EXPECT_EQ(mode_of("out/config.json"), 0640U);
  EXPECT_EQ(mode_of("out/vocab.json"), 0444U);
  // Either file may hold tensors of both.
  EXPECT_EQ(mode_of("out/model-00001-of-00002.safetensors"), 0640U);
  EXPECT_EQ(mode_of("out/model-00002-of-00002.safetensors"), 0640U);
}

TEST_F(CopiedFilesTest, AFileThatBecomesAPipeIsNotRead) {
  write_model();
  QuantizeCheckpointOptions options;
  options.on_progress = [&](const Progress&) {
    fs::remove(path("model/tokenizer.json"));
    EXPECT_EQ(mkfifo(path("model/tokenizer.json").c_str(), 0600), 0);
    return true;
  };
  EXPECT_TRUE(has(refusal("out", ErrorCode::io, options), "no plain file any more"));
}

}  // namespace
}  // namespace octavo
