// A model, its plan, and processes that share it, for tests. What starts threads runs in processes
// of its own, and calls in the test itself have one thread: the thread sanitizer keeps the threads
// of a process whose parent had several when it was forked, and ends it.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "octavo/pipeline/pipeline_testing_internal.h"
#include "octavo/pipeline/plan/file/plan_file.h"

namespace octavo {

class SharedTest : public PipelineTest {
 protected:
  // Files of at most 250 KB, so that matrices that share a scale lie in several.
  void plan(QuantizeCheckpointOptions options, const std::string& file = "plan.json") const {
    options.plan.shard_bytes = 250'000;
    const pid_t child = start([&] {
      const CheckpointReader source(path("model"));
      std::string content;
      write_plan_file(source, plan_quantize(source, options.plan), {},
                      [&](std::string_view piece) { content += piece; });
      save(file, content);
    });
    EXPECT_EQ(ended(child), 0);
  }
  // The folder of one call without a plan.
  std::map<std::string, std::string> alone(QuantizeCheckpointOptions options,
                                           const std::string& out = "alone") const {
    options.plan.shard_bytes = 250'000;
    EXPECT_EQ(ended(start([&] { (void)run(out, options); })), 0);
    return contents_of(path(out));
  }
  [[nodiscard]] QuantizeCheckpointOptions sharing(int rank, int world,
                                                  double takeover_after = 20) const {
    QuantizeCheckpointOptions options;
    options.threads = 1;
    options.shared = SharedRun{path("plan.json"), rank, world, takeover_after};
    return options;
  }
  CheckpointReport share(const QuantizeCheckpointOptions& options,
                         const std::string& out = "out") const {
    return quantize_checkpoint("", path(out), options);
  }
  [[nodiscard]] std::string refused(ErrorCode code, const QuantizeCheckpointOptions& options,
                                    const std::string& out = "out") const {
    return message_of([&] { (void)share(options, out); }, code);
  }

  static pid_t start(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child != 0) return child;
    int status = 1;
    try {
      work();
      status = 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(status);
  }
  // The child's exit status, or minus its signal.
  static int ended(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  // Every file under a final name equals that of `whole`.
  void expect_no_halves(const std::map<std::string, std::string>& whole) const {
    if (!std::filesystem::exists(path("out"))) return;
    for (const auto& [name, content] : contents_of(path("out")))
      if (!name.ends_with(".octavo-tmp")) {
        ASSERT_TRUE(whole.contains(name)) << name;
        EXPECT_TRUE(content == whole.at(name)) << name;
      }
  }
};

}  // namespace octavo
