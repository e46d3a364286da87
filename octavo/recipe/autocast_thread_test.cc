#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/recipe/autocast.h"

namespace octavo {
namespace {

TEST(AutocastThread, AThreadThatEndsAnothersScopeLeavesNothingOpenThere) {
  const std::vector<TensorRole> roles{TensorRole::input};
  const auto set = std::make_shared<QuantizerSet>(DelayedScaling{.amax_history_len = 2},
                                                  QuantizerSetOptions{.roles = roles});
  auto scope = std::make_unique<Autocast>(DelayedScaling{});
  current_autocast().region->runs_forward({set});
  set->set_amaxes(std::vector<float>{7});
  std::thread([&] {
    EXPECT_THROW(scope->leave(), Error);
    scope->leave_later();
  }).join();
  EXPECT_EQ(current_autocast().recipe, nullptr);
  EXPECT_EQ(set->inv_scale().span<float>()[0], 1.0F);
  EXPECT_EQ(set->amaxes(), (std::vector<float>{0}));
}

}  // namespace
}  // namespace octavo
