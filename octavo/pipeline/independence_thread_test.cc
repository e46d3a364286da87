// Neither bytes nor metrics depend on the number of threads or on max_memory.
#include <gtest/gtest.h>

#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

class IndependenceThreadTest : public PipelineTest {};

TEST_F(IndependenceThreadTest, OfThreadsAndMemory) {
  write_model();
  for (const char* const name : {"fp8", "fp8-block", "nvfp4"}) {
    QuantizeCheckpointOptions options = recipe(name);
    options.threads = 1;
    const CheckpointReport one = run(std::string(name) + "-1", options);
    const auto wanted = contents_of(path(std::string(name) + "-1"));
    for (const int threads : {2, 5}) {
      options.threads = threads;
      options.max_memory = threads == 5 ? 16ULL << 20 : 1ULL << 30;
      const std::string out = text(name, "-", threads);
      const CheckpointReport many = run(out, options);
      EXPECT_EQ(contents_of(path(out)), wanted) << out;
      ASSERT_EQ(many.tensors.size(), one.tensors.size());
      for (std::size_t i = 0; i < one.tensors.size(); ++i) {
        EXPECT_EQ(many.tensors[i].metrics, one.tensors[i].metrics) << out;
        EXPECT_EQ(many.tensors[i].scale_histogram, one.tensors[i].scale_histogram) << out;
      }
    }
  }
}

}  // namespace
}  // namespace octavo
