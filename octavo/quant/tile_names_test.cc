#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "octavo/base/error.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"

namespace octavo {
namespace {

TEST(TileNames, NamesAndSizes) {
  EXPECT_EQ(parse_tile("tensor"), (Tile{0, 0}));
  EXPECT_EQ(parse_tile("row"), (Tile{1, 0}));
  EXPECT_EQ(parse_tile("column"), (Tile{0, 1}));
  EXPECT_EQ(parse_tile("1x32"), (Tile{1, 32}));
  EXPECT_EQ(parse_tile("128x128"), (Tile{128, 128}));
  EXPECT_EQ(parse_tile("allxall"), (Tile{0, 0}));  // as describe writes it
}

TEST(TileNames, AnythingElseIsRefused) {
  for (const char* name : {"", "x", "32", "1x", "x32", "0x32", "-1x32", "1x32x4", "1 x 32", "rows",
                           "1x99999999999999999999"}) {
    EXPECT_THROW((void)parse_tile(name), Error) << name;
  }
}

// Whether codes are packed is a question only below eight bits: elsewhere the scaling stays as it
// was, so that it compares equal to that of quantize.
TEST(Scaling, IsTheSameWhateverContextACallerWrote) {
  Scaling other = preset("fp8");
  other.scale.context = {.input = InputType::bf16, .per_tensor = true};
  EXPECT_EQ(other, preset("fp8"));
}

TEST(QuantizedFrom, KeepsTheScaling) {
  for (const char* name : {"fp8", "mxfp8", "mxint8", "mxfp4"}) {
    const QuantizedTensor made = make_quantized({4, 64}, DType::f32, preset(name));
    const auto bytes = made.rowwise.scales.bytes();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    EXPECT_EQ(
        quantized_from(made.shape, preset(name), made.rowwise.codes, made.rowwise.scales).scaling,
        preset(name))
        << name;
  }
}

}  // namespace
}  // namespace octavo
