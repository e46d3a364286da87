#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "octavo/quant/tensor_search_internal.h"

namespace octavo {

FitAmax TensorSearch::find(const QuantizeJob& job, std::int64_t count, float amax) const {
  if (!is_searched(job.policy, job.scale, amax)) return {job.scale, amax};
  if (tries_scales(job.policy)) return fitted(job.policy, job.scale, amax);
  const float found = ranked(percentile_rank(count, job.percentile));
  return {job.scale, found > 0.0F ? found : amax};  // mostly zeros, but not all
}

// Digit by digit: a pass over all matrices counts how often each digit follows the bits found so
// far.
float TensorSearch::ranked(std::int64_t rank) const {
  RankDigit digit;
  std::vector<std::int64_t> counts(kRankDigits);
  for (; digit.shift >= 0; digit.shift -= kRankDigitBits) {
    std::fill(counts.begin(), counts.end(), 0);
    for_each_job(
        [&](const QuantizeJob& job) { count_magnitudes(exec, job, digit, counts.data()); });
    digit.prefix |= digit_of_rank(counts.data(), rank) << digit.shift;
  }
  return std::bit_cast<float>(digit.prefix);
}

FitAmax TensorSearch::fitted(AmaxPolicy policy, const ScaleSpec& spec, float amax) const {
  std::array<double, kMaxFitCandidates> squares{};
  Format element;
  for_each_job([&](const QuantizeJob& job) {
    element = job.rowwise.codes.format;
    add_fit_squares(exec, job, amax, squares.data());
  });
  FitAmax best{spec, amax};
  double least = HUGE_VAL;
  for (int i = 0; i < fit_candidates(policy, spec); ++i) {
    const FitAmax other = fit_amax(spec, element, amax, i);
    const TileScale scale = tile_scale(other.spec, element, other.amax);
    const double error = fit_error(policy, squares[static_cast<std::size_t>(i)], scale.scale);
    if (error < least) {
      least = error;
      best = other;
    }
  }
  return best;
}

}  // namespace octavo
