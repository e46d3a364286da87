// NVFP4's search: sums without codes, and codes found by integers first beside those found by sums
// in f32 alone.
#include <cmath>
#include <random>

#include "octavo/backend/cpu/isa/neon/fp4_search.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/portable/fp4_squares_testing.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"

namespace octavo::cpu {
namespace {

TEST(Fp4SquaresNeon, AreThoseOfCodes) { expect_errors_of_codes(neon_fp4_squares); }
TEST(Fp4SquaresNeon, OfEverySize) { expect_every_size(neon_fp4_squares); }

constexpr ScaleSpec kSpec{.format = ScaleFormat::e4m3_f32};

struct Tile16 {
  Fp4Floats magnitudes[4];
  float amax = 0;
};

template <typename Next>
Tile16 tile_of(Next&& next) {
  Tile16 tile;
  for (int i = 0; i < 16; ++i) {
    const float x = std::fabs(next());
    tile.magnitudes[i / 4][i % 4] = x;
    tile.amax = std::max(tile.amax, x);
  }
  return tile;
}

class Fp4SearchNeon : public ::testing::TestWithParam<int> {};

// How many tiles were left to sums in f32 is counted: if it were none, or all, the bound would be
// of no use.
TEST_P(Fp4SearchNeon, FindsWhatSumsInF32Find) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  constexpr float kGrid[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const uint8x16x2_t grid = fp4_grid();
  int open = 0;
  constexpr int kTiles = 200000;
  for (const float tensor_scale : {1.0F, 0.0123456F, 0x1p-99F}) {
    const auto of_code = two_level_scales(kSpec, tensor_scale);
    for (int t = 0; t < kTiles; ++t) {
      const float size = tensor_scale * std::exp2(static_cast<float>(random() % 160) / 10 - 6);
      const Tile16 tile = tile_of([&] {
        switch (GetParam()) {
          case 0:
            return size * normal(random);
          case 1:
            return size * uniform(random);
          case 2:  // exact under some scale
            return size * kGrid[random() % 8];
          case 3:  // few different values: ties
            return size * static_cast<float>(random() % 13);
          default:  // one large, the others small
            return size * (random() % 16 == 0 ? 1.0F : 0.1F * uniform(random));
        }
      });
      const TileScale own = tile_scale(kSpec, e2m1fn, tile.amax, tensor_scale);
      if (tile.amax == 0.0F) continue;
      if (!fp4_is_ordinary(tensor_scale, own.bits)) continue;
      const std::uint32_t wanted = fp4_least_error(tile.magnitudes, of_code.data(), own.bits);
      alignas(16) std::int32_t rough[12];
      fp4_rough_sums(tile.magnitudes, of_code[own.bits - kFitCodesBelow].factor, own.bits, grid,
                     rough);
      const std::uint32_t places = fp4_likely_codes(rough, own.bits);
      ASSERT_NE(places >> (wanted + kFitCodesBelow - own.bits) & 1u, 0u)
          << "tile " << t << ", code of the amax " << own.bits;
      open += (places & (places - 1)) != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(open, 0);
  if (GetParam() < 2) {
    EXPECT_LT(open, 2 * kTiles / 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Fp4SearchNeon, ::testing::Range(0, 5));

}  // namespace
}  // namespace octavo::cpu
