// One scale in all tiles of a weight, which was not made for them: scales that were overwritten by
// their mean, or by any other number.
#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

// Scales that were made for their tiles put the largest code of each at the top of the format
// (check_magnitude). Where all tiles are so and all scales are the same, all tiles have the same
// amax. Ternary weights have that, and weights of one value; uniform values have it nearly, as some
// layers are initialized with, and their kurtosis is 1.8, that of 16 normal ones 2.7 and of more up
// to 3; so have values that were clamped, of which many are near the largest, while of normal ones,
// 16 or 16384, it is one to three. Of weights with many values and tails it is chance:
// - Quotients: two scales are the same with a chance of at most 1 in 10 (bf16 has 128 numbers in an
//   octave, E4M3 8, and the amax of 16 to 16384 normal values spreads over 5 % to 50 %); 16 of them
//   with 1 in 10^15.
// - Powers of two: blocks of 32 normal values have an amax of 1.5 to 3.7 standard deviations, 93 %
//   of them at most in one octave, so that 256 are alike with a chance of 10^-8. Tiles with more
//   values spread less, and nothing can be told from them.
// A scale of a whole tensor that was written to each of its tiles leaves most tiles below the top.
constexpr std::int64_t kQuotients = 16, kPowers = 256;
constexpr float kBell = 2.3F, kPeaks = 4.0F;

bool has_tails(const VerifiedWeight& weight) {
  return weight.reach.levels >= kManyLevels && weight.reach.kurtosis >= kBell &&
         weight.reach.peaks <= kPeaks;
}

bool are_at_the_top(const VerifiedWeight& weight) {
  const Magnitude& reach = weight.reach;
  return (reach.powers ? reach.reaching : reach.topped) * 10 >= reach.tiles * 9;
}

}  // namespace

void check_overwritten(const VerifyView& view, Findings& out) {
  // Weights of few tiles count together, where all of them are alike.
  std::int64_t together = 0;
  bool all = true;
  for (const VerifiedWeight& weight : view.weights) {
    const Magnitude& reach = weight.reach;
    if (reach.tiles < 2 || reach.powers || !has_tails(weight)) continue;
    all &= reach.alike && are_at_the_top(weight);
    together += reach.tiles - 1;
  }
  for (const VerifiedWeight& weight : view.weights) {
    const Magnitude& reach = weight.reach;
    if (!reach.alike || reach.tiles < 2 || !has_tails(weight)) continue;
    const bool powers = reach.powers;
    if (!are_at_the_top(weight)) continue;
    const Tile tile = weight.found->weight.scaling.tile;
    const bool chance = powers ? reach.tiles < kPowers || tile.rows != 1 || tile.cols != 32
                               : reach.tiles < kQuotients && !(all && together >= kQuotients);
    if (chance) continue;
    suspect(view, weight.scales->plan.name,
            text("the scales of all ", reach.tiles,
                 " tiles that were looked at are the same, and each tile has codes at the top of "
                 "the format, as with a scale of its own: were scales overwritten?"),
            out);
  }
}

}  // namespace octavo
