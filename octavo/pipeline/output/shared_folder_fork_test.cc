// A process whose job was taken over leaves the temporary files of the one that has it now.
#include "octavo/pipeline/output/shared_folder_internal.h"

#include <gtest/gtest.h>

#include "octavo/pipeline/shared_testing_internal.h"

namespace octavo {
namespace {

class SharedFolderForkTest : public SharedTest {
 protected:
  static constexpr const char* kFile = "model-00001-of-00002.safetensors";
  static constexpr const char* kTheirs = ".model-00001-of-00002.safetensors.12-3-45.octavo-tmp";
};

TEST_F(SharedFolderForkTest, LeftoversAreRemovedByTheOneThatHasTheJob) {
  write_model();
  // In a process of its own, as a claim has a thread.
  EXPECT_EQ(ended(start([&] {
              const CheckpointReader source(path("model"));
              const SharedFolder folder(path("out"), source, {kFile}, {"plan", "sample"},
                                        {"", 0, 2, 60}, false);
              const std::string other = text("out/.", kFile, ".x.12-3-45.octavo-tmp");
              Claims claims(folder.work_folder(), "first", std::chrono::minutes(1));
              const auto claim = claims.take("file-00001");
              save(text("out/", kTheirs), "half");
              save(other, "of a file with a longer name");
              folder.remove_leftovers(*claim, kFile);
              if (std::filesystem::exists(path(text("out/", kTheirs))))
                throw std::runtime_error("a leftover of a dead process stayed");
              if (!std::filesystem::exists(path(other)))
                throw std::runtime_error("what is of another file went");
              // Taken over: what is there now is of the next one.
              save("out/octavo-work/file-00001.1.claim", "second at 1, 0 bytes\n");
              save(text("out/", kTheirs), "half");
              folder.remove_leftovers(*claim, kFile);
              if (!std::filesystem::exists(path(text("out/", kTheirs))))
                throw std::runtime_error("the file of the one that has the job went");
              if (!claim->is_lost())
                throw std::runtime_error("it does not know that it was taken over");
            })),
            0);
}

}  // namespace
}  // namespace octavo
