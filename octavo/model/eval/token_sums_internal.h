// The softmax of a token's logits, of which only a few are in memory at a time: what remains of
// them is a handful of sums (online softmax), and from those come its log-likelihood, the most
// likely successor, and KL(original || model).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace octavo::eval {

// Logits are summed in blocks of kLogitBlock, counted from the first of the vocabulary: sums do not
// depend on how many blocks come at a time.
inline constexpr std::int64_t kLogitBlock = 1024;

// Of one token and one model.
struct TokenSums {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0.0;  // of exp(logit - largest)
  // Of exp(original's logit - original's largest) * (original's logit - logit).
  double divergence = 0.0;
  double target = std::numeric_limits<double>::quiet_NaN();  // logit of the token that follows
  std::int32_t top = -1;                                     // the first of the largest logits

  [[nodiscard]] double log_normalizer() const { return std::log(sum) + largest; }
  [[nodiscard]] double log_loss() const { return log_normalizer() - target; }
};

// The next logits of one token, of several models: ids [first_id, first_id + count), and first_id
// is a multiple of kLogitBlock. `sums` has one for each model. With `against_first`, divergences of
// the others from the first are summed as well.
void add_logits(std::span<const float* const> logits, std::span<TokenSums* const> sums,
                std::int64_t first_id, std::int64_t count, std::int32_t target, bool against_first);

// Not below zero, which rounding could make of equal models.
[[nodiscard]] double divergence_of(const TokenSums& original, const TokenSums& model);

}  // namespace octavo::eval
