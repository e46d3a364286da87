// The kernels over f32 lanes, called as they are.
#include "octavo/backend/cpu/isa/avx2/lanes_testing.h"
#include "octavo/backend/cpu/isa/avx512/avx512.h"
#include "octavo/backend/cpu/isa/portable/fp4_squares_testing.h"
#include "octavo/base/cpu_features.h"

namespace octavo::cpu {
namespace {

class LanesAvx512 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_features().avx512) GTEST_SKIP() << "this CPU lacks the instructions";
  }
};

TEST_F(LanesAvx512, EncodeAnyBits) { expect_codes_of_any_bits(kAvx512Isa); }
TEST_F(LanesAvx512, AmaxOfEveryLength) { expect_amaxes(kAvx512Isa); }
TEST_F(LanesAvx512, SearchOfNvfp4) { expect_searched_nvfp4(kAvx512Isa); }
TEST_F(LanesAvx512, SearchOfMxfp4) { expect_searched_mxfp4(kAvx512Isa); }
TEST_F(LanesAvx512, DecodesPastTheCaches) { expect_streams(kAvx512Isa); }
TEST_F(LanesAvx512, SquaresAreThoseOfCodes) { expect_errors_of_codes(kAvx512Isa.fp4_squares); }
TEST_F(LanesAvx512, SquaresOfEverySize) { expect_every_size(kAvx512Isa.fp4_squares); }

}  // namespace
}  // namespace octavo::cpu
