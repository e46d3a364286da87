// A mix does not depend on the number of threads or on max_memory.
#include <gtest/gtest.h>

#include "octavo/pipeline/mix/mix.h"
#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

class MixThreadTest : public PipelineTest {};

TEST_F(MixThreadTest, OfThreadsAndMemory) {
  write_model();
  QuantizeCheckpointOptions options;
  options.threads = 1;
  MixChoice one = choose_mix(path("model"), {.bits_per_weight = 5}, options);
  MixResult wanted = *one.result;
  wanted.seconds = 0;
  for (const int threads : {2, 5}) {
    options.threads = threads;
    options.max_memory = threads == 5 ? 16ULL << 20 : 1ULL << 30;
    const MixChoice many = choose_mix(path("model"), {.bits_per_weight = 5}, options);
    EXPECT_EQ(many.plan.recipe, one.plan.recipe);
    EXPECT_EQ(many.plan.recipe_for, one.plan.recipe_for);
    MixResult got = *many.result;
    got.seconds = 0;
    EXPECT_EQ(json_of(got), json_of(wanted));
  }
}

}  // namespace
}  // namespace octavo
