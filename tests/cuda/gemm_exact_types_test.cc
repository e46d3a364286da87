// gemm_exact_types.h: every value of a format, times every scale where that is multiplied in, must
// be a value of the wider type. Checked one by one; no device is needed.
#include "octavo/backend/cuda/gemm/gemm_exact_types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/octavo.h"

namespace octavo::cuda {
namespace {

std::vector<double> numbers_of(const Format& format) {
  std::vector<double> numbers;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    const double value = decode(format, code);
    if (std::isfinite(value)) numbers.push_back(value);
  }
  return numbers;
}

// An independent definition of the values of a type: a multiple of the step of its binade, not too
// large.
bool is_one_of(double value, int significant, int least_step, double largest) {
  if (value == 0) return true;
  const int step = std::max(std::ilogb(value) - significant + 1, least_step);
  const double units = std::ldexp(value, -step);
  return std::fabs(value) <= largest && units == std::trunc(units);
}
bool is_bf16(double value) { return is_one_of(value, 8, -133, 0x1.FEp127); }
bool is_f16(double value) { return is_one_of(value, 11, -24, 65504.0); }
bool is_e4m3(double value) { return is_one_of(value, 4, -9, 448.0); }

struct Wide {
  Format format;
  bool (*has)(double);
};

const char* const kFormats[] = {"e4m3fn", "e5m2",   "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e4m3",
                                "e3m4",   "e3m2fn", "e2m3fn",   "e2m1fn",   "mxint8",      "e5m10",
                                "e8m7",   "e6m9",   "e2m5",     "e7m0fn",   "e5m1"};

TEST(GemmExactTypes, HoldsWhatItSays) {
  int held = 0;
  for (const char* name : kFormats) {
    const Format format = parse_format(name);
    const auto all = [&](bool (*is)(double)) {
      for (const double value : numbers_of(format))
        if (!is(value)) return false;
      return true;
    };
    // holds() is never true where that fails.
    for (const Wide& wide : {Wide{bf16_format, is_bf16}, {f16_format, is_f16}, {e4m3fn, is_e4m3}}) {
      if (!holds(wide.format, reach_of(format))) continue;
      EXPECT_TRUE(all(wide.has)) << name;
      ++held;
    }
  }
  EXPECT_GT(held, 25);
  // It is true where GEMM relies on it.
  for (const char* name : {"e4m3fn", "e5m2", "e4m3fnuz", "e3m2fn", "e2m3fn", "e2m1fn", "mxint8"})
    EXPECT_TRUE(holds(bf16_format, reach_of(parse_format(name)))) << name;
  for (const char* name : {"e3m2fn", "e2m3fn", "e2m1fn"})
    EXPECT_TRUE(holds(e4m3fn, reach_of(parse_format(name)))) << name;
  EXPECT_FALSE(holds(bf16_format, reach_of(f16_format)));
  EXPECT_FALSE(holds(f16_format, reach_of(bf16_format)));
  EXPECT_FALSE(holds(e4m3fn, reach_of(e5m2)));
}

TEST(GemmExactTypes, HoldsProductsWithScales) {
  const std::vector<double> scales = numbers_of(e4m3fn);
  int held = 0;
  for (const char* name : kFormats) {
    const Format format = parse_format(name);
    const Reach products = reach_of(format) * reach_of(e4m3fn);
    for (const Wide& wide : {Wide{bf16_format, is_bf16}, {f16_format, is_f16}}) {
      if (!holds(wide.format, products)) continue;
      ++held;
      for (const double value : numbers_of(format))
        for (const double scale : scales) ASSERT_TRUE(wide.has(value * scale)) << name;
    }
  }
  EXPECT_GT(held, 4);
  EXPECT_TRUE(holds(bf16_format, reach_of(e2m1fn) * reach_of(e4m3fn)));  // NVFP4
  EXPECT_TRUE(holds(f16_format, reach_of(e2m1fn) * reach_of(e4m3fn)));
  EXPECT_FALSE(holds(bf16_format, reach_of(e3m4) * reach_of(e4m3fn)));  // nine bits
}

}  // namespace
}  // namespace octavo::cuda
