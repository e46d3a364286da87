#include "octavo/report/expected_error_internal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "octavo/report/report_testing_internal.h"

namespace octavo {
namespace {

using Extents = std::vector<std::int64_t>;

// Beside other normal values, of another generator. Both are sums over 2^14 values or more, whose
// squared errors deviate by about sqrt(4 / 2^14), 0.07 dB; 0.4 dB are five of those. What an
// integer with a power-of-two scale loses depends on where in its octave the amax is: 6 dB from one
// end to the other, of which the tiles of one deviation, whose amax varies, average all but one.
TEST(ExpectedError, IsWhatNormalWeightsHave) {
  for (const std::string& name : preset_names()) {
    const TensorReport drawn = testing::sample_tensor("m", name, 0.02);
    const ExpectedError expected = expected_error(preset(name), drawn.shape);
    const double tolerance = name == "mxint8" ? 1.0 : 0.4;
    EXPECT_NEAR(expected.sqnr, drawn.metrics.sqnr, tolerance) << name;
    EXPECT_NEAR(10 * std::log10(1 - expected.cosine), 10 * std::log10(1 - drawn.metrics.cosine),
                tolerance)
        << name;
  }
}

// A rounding error is uniform in a step, and a value of a binade [1, 2) has the step 2^-3: relative
// to values that are spread evenly there, sqrt(2^-6 / 12) / sqrt(7 / 3) is 2.4 %, to normal ones,
// which are denser at the lower end, 2.6 %: 31.5 dB (docs/numerics/attention.md).
TEST(ExpectedError, OfE4m3IsThatOfItsMantissa) {
  for (const char* name : {"fp8", "fp8-channel", "fp8-block", "mxfp8"})
    EXPECT_NEAR(expected_error(preset(name), Extents{1024, 1024}).sqnr, 31.5, 0.5) << name;
}

TEST(ExpectedError, ShapesThatAreNoMatrixHaveOne) {
  EXPECT_TRUE(std::isfinite(expected_error(preset("mxfp4"), Extents{}).sqnr));
  EXPECT_TRUE(std::isfinite(expected_error(preset("fp8-block"), Extents{3, 1, 1}).sqnr));
  EXPECT_TRUE(std::isfinite(expected_error(preset("fp8-channel"), Extents{1, 1 << 20}).sqnr));
}

TEST(ExpectedError, IsMeasuredOnceForEachLengthOfARow) {
  ExpectedErrors expected;
  const double first = expected.of(preset("nvfp4"), Extents{64, 256}).sqnr;
  EXPECT_EQ(expected.of(preset("nvfp4"), Extents{8192, 256}).sqnr, first);
  EXPECT_EQ(expected_error(preset("nvfp4"), Extents{64, 256}).sqnr, first);
}

}  // namespace
}  // namespace octavo
