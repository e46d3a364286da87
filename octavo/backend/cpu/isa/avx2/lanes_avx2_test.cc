// The kernels over f32 lanes, called as they are.
#include "octavo/backend/cpu/isa/avx2/avx2.h"
#include "octavo/backend/cpu/isa/avx2/lanes_testing.h"
#include "octavo/backend/cpu/isa/portable/fp4_squares_testing.h"
#include "octavo/base/cpu_features.h"

namespace octavo::cpu {
namespace {

class LanesAvx2 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_features().avx2) GTEST_SKIP() << "this CPU lacks the instructions";
  }
};

TEST_F(LanesAvx2, EncodeAnyBits) { expect_codes_of_any_bits(kAvx2Isa); }
TEST_F(LanesAvx2, AmaxOfEveryLength) { expect_amaxes(kAvx2Isa); }
TEST_F(LanesAvx2, SearchOfNvfp4) { expect_searched_nvfp4(kAvx2Isa); }
TEST_F(LanesAvx2, SearchOfMxfp4) { expect_searched_mxfp4(kAvx2Isa); }
TEST_F(LanesAvx2, DecodesPastTheCaches) { expect_streams(kAvx2Isa); }
TEST_F(LanesAvx2, SquaresAreThoseOfCodes) { expect_errors_of_codes(kAvx2Isa.fp4_squares); }
TEST_F(LanesAvx2, SquaresOfEverySize) { expect_every_size(kAvx2Isa.fp4_squares); }

}  // namespace
}  // namespace octavo::cpu
