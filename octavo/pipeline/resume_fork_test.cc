// A process killed at any time leaves no half-written file under a final name, and a resuming
// process produces the bytes of an uninterrupted one.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "octavo/pipeline/pipeline_testing_internal.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

class ResumeForkTest : public PipelineTest {
 protected:
  // The child's exit status, or minus its signal. `work` ends by itself or is killed.
  static int in_child(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        work();
      } catch (const std::exception&) {
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  // Every file under a final name equals that of `whole`.
  void expect_no_halves(const std::map<std::string, std::string>& whole) const {
    for (const auto& [name, content] : contents_of(path("out")))
      if (!name.ends_with(".octavo-tmp") && name != "octavo-progress.json") {
        ASSERT_TRUE(whole.contains(name)) << name;
        EXPECT_EQ(content, whole.at(name)) << name;
      }
  }
};

TEST_F(ResumeForkTest, KilledAtAnyTimeAndResumed) {
  write_model();
  for (const char* const name : {"nvfp4", "fp8-channel"}) {
    QuantizeCheckpointOptions options = recipe(name);
    options.threads = 1;
    const CheckpointReport alone = run(std::string("alone-") + name, options);
    const auto whole = contents_of(path(std::string("alone-") + name));
    int kills = 0, kept = 0;
    // Killed later and later until it finishes first: counted in row blocks, because time is not
    // reproducible.
    const int step = support::under_sanitizer() ? 12 : 4;
    for (int row_block = 0; row_block < 60; row_block += step) {
      std::filesystem::remove_all(path("out"));
      const int status = in_child([&] {
        QuantizeCheckpointOptions killed = options;
        int calls = 0;
        killed.on_progress = [&](const Progress&) {
          if (calls++ == row_block) kill(getpid(), SIGKILL);
          return true;
        };
        killed.every_row_block = true;
        (void)run("out", killed);
      });
      if (status == 0) break;
      ASSERT_EQ(status, -SIGKILL);
      ++kills;
      expect_no_halves(whole);
      EXPECT_FALSE(std::filesystem::exists(path("out/config.json")));
      kept += std::filesystem::exists(path("out/model-00001-of-00002.safetensors")) ? 1 : 0;
      QuantizeCheckpointOptions again = options;
      EXPECT_TRUE(has(refusal("out", ErrorCode::io, again), "resume"));
      again.resume = true;
      const CheckpointReport report = run("out", again);
      EXPECT_EQ(contents_of(path("out")), whole) << "killed at " << row_block;
      for (std::size_t i = 0; i < report.tensors.size(); ++i)
        EXPECT_EQ(report.tensors[i].metrics, alone.tensors[i].metrics) << report.tensors[i].name;
    }
    EXPECT_GT(kills, 16 / step);
    EXPECT_GT(kept, 0);
  }
}

// Killed from outside at arbitrary times: in a write, a flush, a rename.
TEST_F(ResumeForkTest, KilledFromOutside) {
  write_model();
  (void)run("alone", recipe("fp8"));
  const auto whole = contents_of(path("alone"));
  for (const int milliseconds : {2, 11, 23, 47, 95}) {
    std::filesystem::remove_all(path("out"));
    const pid_t child = fork();
    if (child == 0) {
      (void)run("out", recipe("fp8"));
      _exit(0);
    }
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (std::filesystem::exists(path("out"))) expect_no_halves(whole);
    if (std::filesystem::exists(path("out/config.json"))) continue;  // it had finished
    QuantizeCheckpointOptions again = recipe("fp8");
    again.resume = true;
    (void)run("out", again);
    EXPECT_EQ(contents_of(path("out")), whole) << milliseconds;
  }
}

TEST_F(ResumeForkTest, OtherOptionsOrAnotherSourceAreRefused) {
  write_model();
  const auto kill_it = [&] {
    ASSERT_EQ(in_child([&] {
                QuantizeCheckpointOptions options = recipe("mxfp8");
                options.every_row_block = true;
                options.on_progress = [](const Progress& at) {
                  if (at.bytes_done > at.bytes_total * 3 / 4) kill(getpid(), SIGKILL);
                  return true;
                };
                (void)run("out", options);
              }),
              -SIGKILL);
  };
  kill_it();
  QuantizeCheckpointOptions other = recipe("fp8-channel");
  other.resume = true;
  EXPECT_TRUE(has(refusal("out", ErrorCode::invalid_argument, other), "other options"));
  other = recipe("mxfp8");
  other.resume = true;
  std::fstream(path("model/model-00001-of-00002.safetensors"),
               std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put('x');
  EXPECT_TRUE(has(refusal("out", ErrorCode::invalid_argument, other), "another source"));
}

class MemoryForkTest : public ResumeForkTest {
 protected:
  void SetUp() override {
    if (support::under_sanitizer())
      GTEST_SKIP() << "a sanitizer has memory of its own: what is freed and held back, and shadows";
    ResumeForkTest::SetUp();
  }
  // A model of zeros that takes no disk space: a sparse file.
  void write_hole(const std::string& tensors, std::int64_t bytes) {
    std::filesystem::create_directory(root / "model");
    const std::string json = text("{", tensors, "}");
    std::string header(8, '\0');
    for (std::size_t i = 0; i < 8; ++i)
      header[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
    save("model/model.safetensors", header + json);
    std::filesystem::resize_file(path("model/model.safetensors"),
                                 8 + json.size() + static_cast<std::uintmax_t>(bytes));
  }
  static std::string tensor_at(const std::string& name, std::int64_t rows, std::int64_t cols,
                               std::int64_t begin) {
    return text("\"", name, R"(":{"dtype":"BF16","shape":[)", rows, ",", cols,
                R"(],"data_offsets":[)", begin, ",", begin + 2 * rows * cols, "]}");
  }
  void expect_little_memory(const std::string& by) {
    const int units = in_child([&] {
      (void)run("out", recipe(by));
      struct rusage usage {};
      getrusage(RUSAGE_SELF, &usage);
      _exit(static_cast<int>(usage.ru_maxrss >> 12));  // a status has eight bits: units of 4 MiB
    });
    EXPECT_GT(units, 0);
    EXPECT_LT(4 * units, 120);
  }
};

TEST_F(MemoryForkTest, DoesNotGrowWithTheModel) {
  constexpr std::int64_t kRows = 1 << 15, kCols = 1 << 13;  // 512 MiB
  write_hole(tensor_at("a.up_proj.weight", kRows, kCols, 0), 2 * kRows * kCols);
  expect_little_memory("fp8-block");
}

// Many small matrices, as in a MoE: memory per tensor for the report and the progress record.
TEST_F(MemoryForkTest, HardlyGrowsWithTheNumberOfTensors) {
  constexpr std::int64_t kTensors = 3000, kSide = 32, kBytes = 2 * kSide * kSide;
  std::string tensors;
  for (std::int64_t i = 0; i < kTensors; ++i)
    tensors +=
        text(i > 0 ? "," : "", tensor_at(text("model.layers.0.mlp.experts.", i, ".up_proj.weight"),
                                         kSide, kSide, i * kBytes));
  write_hole(tensors, kTensors * kBytes);
  expect_little_memory("fp8");
}

}  // namespace
}  // namespace octavo
