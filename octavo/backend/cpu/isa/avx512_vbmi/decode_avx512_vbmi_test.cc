// Decoding by byte planes, called as it is.
#include "octavo/backend/cpu/isa/avx2/lanes_testing.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi.h"
#include "octavo/base/cpu_features.h"

namespace octavo::cpu {
namespace {

TEST(DecodeAvx512Vbmi, DecodesPastTheCaches) {
  if (!cpu_features().avx512_vbmi) GTEST_SKIP() << "this CPU lacks the instructions";
  expect_streams(kAvx512VbmiIsa);
}

}  // namespace
}  // namespace octavo::cpu
