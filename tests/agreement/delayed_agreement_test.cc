// A step of delayed scaling on every backend that has one: the bits of the reference.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
#include <vector>

#include "octavo/backend/registry.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A history of rows of `pitch` numbers, and one inv_scale and scale for each tensor.
struct State {
  std::int64_t length, tensors, pitch;
  std::vector<float> history, inv_scale, scale, calls{2.0F};

  State(std::int64_t rows, std::int64_t cols, std::uint32_t seed)
      : length(rows), tensors(cols), pitch(cols + 3) {
    std::mt19937 random(seed);
    const float special[] = {0.0F, std::numeric_limits<float>::quiet_NaN(), kInfinity, 0x1p-149F,
                             0x1.fffffep127F};
    const auto fill = [&](std::vector<float>& numbers, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto draw = static_cast<std::uint32_t>(random());
        numbers.push_back(draw % 4 == 0 ? special[draw / 4 % 5]
                                        : static_cast<float>(draw % 100000) / 256.0F);
      }
    };
    fill(history, length * pitch);
    fill(inv_scale, tensors);
    fill(scale, tensors);
  }

  [[nodiscard]] DelayedJob job() {
    const auto bytes = [](std::vector<float>& numbers) {
      return reinterpret_cast<std::byte*>(numbers.data());
    };
    constexpr std::int64_t kStep = sizeof(float);
    return {.history = {bytes(history), pitch * kStep},
            .tensor_stride = kStep,
            .length = length,
            .tensors = tensors,
            .inv_scale = {bytes(inv_scale), kStep},
            .scale = {bytes(scale), kStep},
            .calls = {bytes(calls), kStep}};
  }

  [[nodiscard]] std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const std::vector<float>* numbers : {&history, &inv_scale, &scale, &calls})
      for (const float number : *numbers) all.push_back(std::bit_cast<std::uint32_t>(number));
    return all;
  }
};

TEST(DelayedAgreement, EveryPolicyAndSize) {
  std::uint32_t seed = 0;
  for (const std::int64_t length : {1, 2, 7, 1024})
    for (const std::int64_t tensors : {0, 1, 3, 300})
      for (const HistoryPolicy policy :
           {HistoryPolicy::max, HistoryPolicy::most_recent, HistoryPolicy::ema})
        for (const int form : {0, 1, 2, 3}) {
          const State start(length, tensors, ++seed);
          const auto after = [&](const Kernels& kernels) {
            State state = start;
            DelayedJob job = state.job();
            job.policy = policy;
            job.top = 448.0F;
            job.decay = 0.9F;
            job.interval = form == 1 ? 5 : 3;  // not due, and due
            job.reset = form == 2;
            if (form == 3) job.scale = job.calls = {};
            kernels.delayed_update({}, job);
            return state.bits();
          };
          const std::vector<std::uint32_t> wanted = after(reference_backend());
          for (const BackendInfo& backend : support::every_backend()) {
            if (backend.kernels->delayed_update == nullptr) continue;
            ASSERT_EQ(after(*backend.kernels), wanted)
                << backend.name << ", " << length << " x " << tensors << ", policy "
                << static_cast<int>(policy) << ", form " << form;
          }
        }
}

}  // namespace
}  // namespace octavo::testing
