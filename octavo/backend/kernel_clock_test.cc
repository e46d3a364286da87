#include "octavo/backend/kernel_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

float amax_of_one_row(std::vector<float>& row) {
  float amax = 0;
  const Matrix matrix{.data = row.data(),
                      .rows = 1,
                      .cols = static_cast<std::int64_t>(row.size()),
                      .row_pitch = static_cast<std::int64_t>(row.size() * sizeof(float)),
                      .col_stride = sizeof(float)};
  cpu_backend().amax({}, {.values = matrix}, AmaxOf::all, &amax);
  return amax;
}

TEST(KernelClock, CountsKernelCalls) {
  std::vector<float> row(1 << 20, 1.0F);
  row[12345] = -7;
  const Kernels* before = &cpu_backend();
  {
    const auto start = std::chrono::steady_clock::now();
    const KernelClock clock;
    EXPECT_EQ(clock.calls(), 0);
    EXPECT_EQ(amax_of_one_row(row), 7.0F);
    EXPECT_EQ(amax_of_one_row(row), 7.0F);
    EXPECT_EQ(clock.calls(), 2);
    EXPECT_STREQ(cpu_backend().name, before->name);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    EXPECT_GT(clock.seconds(), 0.0);
    EXPECT_LE(clock.seconds(), passed.count());  // a part of what passed
    EXPECT_THROW(const KernelClock second, Error);
  }
  EXPECT_EQ(&cpu_backend(), before);
  const KernelClock again;
  EXPECT_EQ(again.calls(), 0);
}

}  // namespace
}  // namespace octavo
