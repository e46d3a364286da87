#include <gtest/gtest.h>

#include "octavo/model/gptq/gptq.h"
#include "octavo/model/gptq/gptq_testing_internal.h"
#include "octavo/model/gptq/hessian_sum_internal.h"

namespace octavo::gptq_detail {
namespace {

TEST(Gptq, BitsDoNotDependOnThreads) {
  const Tensor weight = testing::normal_values(70, 320, 1);
  const Tensor x = testing::correlated_rows(1500, 320, 2);
  const auto made_by = [&](int threads) {
    HessianSum sum(320);
    sum.add(x.view(), threads);
    std::vector<double> h = sum.take();
    return gptq(weight.view(), value_view(h.data(), DType::f64, {320, 320}), preset("nvfp4"),
                {.threads = threads});
  };
  const GptqResult one = made_by(1);
  for (const int threads : {2, 3, 8}) {
    const GptqResult other = made_by(threads);
    const auto a = one.codes.rowwise.codes.bytes(), b = other.codes.rowwise.codes.bytes();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << threads;
    EXPECT_EQ(one.error, other.error);
    EXPECT_EQ(one.rounded_error, other.rounded_error);
  }
}

}  // namespace
}  // namespace octavo::gptq_detail
