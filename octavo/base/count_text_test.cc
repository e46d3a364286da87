#include "octavo/base/count_text.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(CountText, OneIsNoPlural) {
  EXPECT_EQ(counted(std::int64_t{0}, "tensor"), "0 tensors");
  EXPECT_EQ(counted(std::size_t{1}, "tensor"), "1 tensor");
  EXPECT_EQ(counted(std::size_t{2}, "tensor"), "2 tensors");
  EXPECT_EQ(counted(std::size_t{1}, "matrix", "matrices"), "1 matrix");
  EXPECT_EQ(counted(std::size_t{3}, "matrix", "matrices"), "3 matrices");
  EXPECT_EQ(plural(2, "is", "are"), "are");
}

}  // namespace
}  // namespace octavo
