// Rule on plausible weight magnitudes. Scales that were multiplied, inverted, overwritten or
// swapped between tensors show only in the magnitudes: the codes are unchanged. Here: each weight
// by itself, and beside all others of the model.
#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/format/decode.h"

namespace octavo {
namespace {

// Limits on the median over tiles of the tile's amax. With inputs of order 1, a matrix of K columns
// with weights of order w gives outputs of order w sqrt(K): in trained models w sqrt(K) is from
// some tenths to some tens, so w is below 1 and a tile's amax a few times that.
constexpr float kUnusual = 64.0F, kMax = 1e3F;
// Above F16's range, with room for a scale twice the one that the tile needs. Single weights may be
// thousands: real models have outliers.
constexpr float kBeyondF16 = 0x1p17F;
// Matrices of one model are within a factor of about ten of each other, the largest within a
// hundred of the median. A matrix kLarger times the 90th percentile is implausible; kApart leaves
// room for matrices that training drove towards zero, which can be arbitrarily small.
constexpr float kLarger = 64.0F, kApart = 4096.0F;

float median(std::vector<ScaleCount> numbers) {
  std::ranges::sort(numbers, {}, &ScaleCount::scale);
  std::int64_t all = 0, below = 0;
  for (const ScaleCount& one : numbers) all += one.count;
  for (const ScaleCount& one : numbers) {
    below += one.count;
    if (below > (all - 1) / 2) return one.scale;
  }
  return 0;
}

// Median over tiles of the tile's amax: from codes and scales, or from scales alone where codes
// were not read. 0 where it is unknown: all-zero tiles have the scale 1, or the smallest.
float typical_of(const VerifyView& view, const VerifiedWeight& weight) {
  if (weight.reach.looked) return weight.reach.typical;
  std::vector<ScaleCount> scales = scale_counts(view, weight);
  std::erase_if(scales, [](const ScaleCount& one) {
    return !(one.scale > 0x1p-126F) || one.scale == 1.0F || !std::isfinite(one.scale);
  });
  const auto top = static_cast<float>(max_value(weight.found->weight.scaling.format));
  return median(std::move(scales)) * top * second_level(view, weight);
}

bool are_ones(const std::vector<ScaleCount>& scales) {
  return !scales.empty() &&
         std::ranges::all_of(scales, [](const ScaleCount& one) { return one.scale == 1.0F; });
}

// Checks one weight alone; true where it reported a finding.
bool check_one(const VerifyView& view, const VerifiedWeight& weight, float typical, Findings& out) {
  const std::string& name = weight.scales->plan.name;
  const std::vector<ScaleCount> scales = scale_counts(view, weight);
  if (are_ones(scales) && weight.reach.reaching > 0 && weight.tensor_scale == nullptr) {
    const std::string message =
        text("all its scales are 1, and codes reach the top of their format: weights would reach ",
             typical, "; were scales overwritten?");
    if (typical > kUnusual)
      out.error({kV, kH, kS, kT}, name, message);
    else
      out.warn({kV, kH, kS, kT}, name, message);
    return true;
  }
  if (typical > kMax && weight.tensor_scale != nullptr) return true;  // rule second-level
  if (typical > kMax) {
    out.error({kV, kH, kS, kT}, name,
              text("weights would reach ", typical, ": are these reciprocals of scales?"));
    return true;
  }
  if (typical > kUnusual) {
    out.warn({kV, kH, kS, kT}, name,
             text("weights would reach ", typical,
                  " in the middle tile, and those of models stay below 10: are these its scales?"));
    return true;
  }
  float largest = 0;
  for (const ScaleCount& one : scales)
    largest = std::max(largest, std::isfinite(one.scale) ? one.scale : 0);
  const auto top = static_cast<float>(max_value(weight.found->weight.scaling.format));
  const float most = largest * top * second_level(view, weight);
  if (most > kBeyondF16)
    out.warn({kV, kH, kS, kT}, name,
             text("a weight may reach ", most, ", and the median tile amax is ", typical,
                  ": was a scale damaged?"));
  return most > kBeyondF16;
}

}  // namespace

void check_plausible(const VerifyView& view, Findings& out) {
  struct Typical {
    const VerifiedWeight* weight;
    float reach;
  };
  std::vector<Typical> all;
  std::vector<float> reaches;
  for (const VerifiedWeight& weight : view.weights) {
    const float typical = typical_of(view, weight);
    const bool said = check_one(view, weight, typical, out);
    if (!(typical > 0) || !std::isfinite(typical)) continue;
    if (!said) all.push_back({&weight, typical});
    reaches.push_back(typical);
  }
  check_overwritten(view, out);
  check_beside_layers(view, out);
  check_all_together(view, out);
  if (reaches.size() < 4) return;
  std::sort(reaches.begin(), reaches.end());
  const float usual = reaches[reaches.size() / 2], large = reaches[(reaches.size() - 1) * 9 / 10];
  for (const auto& [weight, reach] : all) {
    const std::string& name = weight->scales->plan.name;
    if (reach > large * kLarger)
      out.warn({kV, kH, kS, kT}, name,
               text("weights would reach ", reach, ", and those of nine in ten tensors ", large,
                    " at most: are these its scales?"));
    else if (reach < usual / kApart)
      out.warn({kV, kH, kS, kT}, name,
               text("weights would reach ", reach, ", and those of other tensors ", usual,
                    ": are these its scales?"));
  }
}

// A divisor read as a multiplier, or vice versa, gives weights of thousands or more. Also, the
// second level is chosen so that the largest block scale among the tensors that share it is 448;
// the limit is a third of that, for writers that aim lower.
void check_second_level(const VerifyView& view, Findings& out) {
  constexpr float kLeastOfLargest = 128.0F;
  struct Shared {
    float largest = 0;
    bool alike = true;  // are all block scales equal?
    float first = 0;
  };
  std::map<float, Shared> groups;
  std::map<const VerifiedWeight*, float> levels;
  for (const VerifiedWeight& weight : view.weights) {
    if (weight.tensor_scale == nullptr) continue;
    const float second = second_level(view, weight), typical = typical_of(view, weight);
    if (typical > kMax)
      out.error(
          {kV, kH, kS, kT}, weight.tensor_scale->plan.name,
          text("weights would reach ", typical, ": this dialect expects the ",
               weight.tensor_scale->divisor ? "divisor, 2688 / amax" : "multiplier, amax / 2688"));
    if (!(second > 0) || !std::isfinite(second)) continue;
    levels[&weight] = second;
    Shared& group = groups[second];
    for (const ScaleCount& one : scale_counts(view, weight)) {
      if (group.first == 0) group.first = one.scale;
      group.alike &= one.scale == group.first;
      group.largest = std::max(group.largest, one.scale);
    }
  }
  for (const auto& [weight, second] : levels) {
    const Shared& group = groups[second];
    // An all-zero tensor has scale 1 at both levels.
    const bool zeros = weight->reach.looked ? weight->reach.typical == 0 : second == 1.0F;
    if (group.largest >= kLeastOfLargest || group.largest == 0 || zeros) continue;
    const std::string message =
        text("block scales reach ", group.largest, " of 448, and the second level is ", second,
             group.alike ? ", and all of them are the same: were they overwritten?"
                         : ": it is another tensor's, or was not made for these");
    if (group.alike && group.largest == 1.0F)
      out.error({kV, kH, kS, kT}, weight->scales->plan.name, message);
    else
      out.warn({kV, kH, kS, kT}, weight->scales->plan.name, message);
  }
}

}  // namespace octavo
