#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/ops/attention/attention_bound_internal.h"

namespace octavo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// What norms, measured in f32, and this arithmetic may be off by.
constexpr double kUpward = 1.0 + 0x1p-12;
// Partial sums are a random walk to the sum, half its square on average, and a rounding is uniform:
// the root of 1 / 2 * 1 / 3.
constexpr double kWalk = 0.41;
// Subnormal products and sums, of any number of keys that memory holds.
constexpr double kTiny = 0x1p-100;
constexpr double kLargest = std::numeric_limits<float>::max();
// Sums of more terms may be off by more than what is said of measured weights allows for: two
// million keys in one sum.
constexpr double kMostSums = 1.0 / 8;

double square(double number) { return number * number; }
// NaN becomes infinite: no bound holds.
double known(double number) { return number == number ? number : kInfinity; }

// Of scores in natural units.
struct ScoreErrors {
  double certified = 0.0;  // of any score of the row
  double variance = 0.0;
  double size = 0.0;  // of a score, before a cap
};

// A factor of all scores, and queries times that factor, may be subnormal in f32.
double lost_of_scores(double query, double key) { return 0x1p-120 * key + 0x1p-148 * query * key; }

ScoreErrors score_errors(const BoundTerms& terms, const QueryNorms& q, const KeyNorms& k,
                         double bias) {
  const double scale = std::abs(terms.softmax_scale), unit = terms.kernels.unit;
  const double key = k.longest + k.error, query = q.length + q.error;  // as they are used
  ScoreErrors errors{.size = scale * query * key};
  const double size = terms.soft_cap != 0.0 ? std::min(errors.size, terms.soft_cap) : errors.size,
               // A score over its cap may be subnormal.
      of_cap = terms.soft_cap != 0.0 ? 12.0 * unit * size + 0x1p-140 * terms.soft_cap : 0.0,
               of_bias = bias != 0.0 ? 4.0 * unit * (bias + 2.0 * size + 90.0) : 0.0;
  errors.certified = scale * (q.error * key + q.length * k.error) +
                     terms.kernels.scores * errors.size + of_cap + of_bias +
                     lost_of_scores(query, key);
  const double of_inputs =
      square(scale) * (square(q.length) * k.error_squares + square(q.error) * k.spread_squares);
  // Partial sums of D products of either sign are a random walk to size / sqrt(D); three more
  // roundings of the score itself. What is left out of limbs is taken as it is.
  const double walk = unit * errors.size * (kWalk + 3.0 / std::sqrt(terms.head_size)),
               of_sums = terms.kernels.scores > 0x1p-10 ? terms.kernels.scores * errors.size : walk;
  errors.variance = of_inputs + square(of_sums) + square(of_cap) + square(of_bias);
  return errors;
}

// n roundings, each of u of what there is, are n u / (1 - n u) together; `sums` is n u.
double sum_error(const AttentionRounding& kernels) { return kernels.sums / (1.0 - kernels.sums); }

// The weights in units of the sum of P, with the relative errors of the sums that they come from.
struct Concentration {
  double least_largest = 0.0;  // the largest weight is at least this
  double root_squares = 1.0;   // the root of the sum of squares is at most this
  double lost = 0.0;           // weights whose P is absolutely off are off by this together
};

Concentration concentration_of(const BoundTerms& terms, const RowWeights& weights) {
  const AttentionRounding& r = terms.kernels;
  const double sums = sum_error(r);
  Concentration c;
  const double largest = std::min(1.0, weights.largest);
  // The sum of P is at least 1 / (2 largest), less what is rounded and lost.
  const double lost = 2.0 * weights.keys * r.lost * largest * kUpward,
               left = 1.0 - r.weights - sums - lost;
  c.lost = left > lost ? lost / left : 1.0;
  const double relative = 2.0 * (r.weights + sums) + 1e-5;
  c.least_largest = std::max(0.0, std::min(1.0, weights.least) * (1.0 - relative) - 2.0 * c.lost);
  c.root_squares =
      std::min(1.0, std::sqrt(std::min(1.0, weights.squares)) * (1.0 + relative) + 2.0 * c.lost);
  return c;
}

// The variance of sum_j w_j d_j (v_j - out) for independent d_j and v_j of variance 1. For the
// probabilistic bound alone: nothing that is certified is made of it.
double variance_if_independent(double largest, double root_squares) {
  if (largest >= 0.5) return 4.0 * square(largest * (1.0 - largest));
  const double squares = square(root_squares);
  return squares * (1.0 - squares);
}

// Is every number that a bound is made of one that a bound can be made of? A NaN or Inf in Q, K, V
// or what was rounded off them, in the biases that count or among the weights (as a sink of NaN or
// +inf makes of them) shows here; and numbers beyond which f32 overflows on the way.
bool has_bound(const BoundTerms& terms, const QueryNorms& q, const KeyNorms& k, const ValueNorms& v,
               const RowWeights& weights, double bias, double score) {
  const auto is_finite = [](auto... numbers) { return (... && (numbers < kInfinity)); };
  const double query = q.length + q.error, key = k.longest + k.error;
  const AttentionRounding& r = terms.kernels;
  return is_finite(v.range, v.squares, v.error, v.largest_scale, bias, weights.least,
                   weights.largest, weights.squares) &&
         v.error_squares == v.error_squares && v.fourth_powers == v.fourth_powers &&
         weights.keys * v.largest < kLargest / 4.0 && score < kLargest / 4.0 &&
         query * std::max(1.0, 2.0 * std::abs(terms.softmax_scale)) < kLargest / 4.0 &&
         key * terms.head_size < kLargest / 16.0 &&
         std::abs(terms.softmax_scale) < kLargest / 4.0 && r.sums <= kMostSums && r.weights <= 0.25;
}

// moved_weight, of expm1(log_error), where that is below 20.
double moved_by(double growth, double largest) {
  const double anything = growth / (growth + 2.0);  // tanh of half
  if (!(largest >= 0.5)) return anything;
  const double ratio = growth * (growth + 2.0);  // exp(2 log_error) - 1
  const auto moved = [&](double share) {
    return share * (1.0 - share) * ratio / (1.0 + share * ratio);
  };
  // Any set has the largest weight, or its share is at most 1 - largest.
  const double peak = 1.0 / (2.0 + growth);
  return std::min(anything, std::max(moved(std::min(1.0 - largest, peak)), moved(largest)));
}

}  // namespace

double deviations_for(double channels) {
  return std::sqrt(2.0 * std::log(2.0 * channels / kBoundFailure));
}

double moved_weight(double log_error, double largest) {
  return log_error < 20.0 ? moved_by(std::expm1(log_error), largest) : 1.0;
}

RowBounds row_bounds(const BoundTerms& terms, const QueryNorms& q, const KeyNorms& k,
                     const ValueNorms& v, const RowWeights& weights, double bias) {
  if (weights.keys <= 0.0) return {};
  const AttentionRounding& r = terms.kernels;
  const ScoreErrors scores = score_errors(terms, q, k, bias);
  if (!has_bound(terms, q, k, v, weights, bias, scores.size))
    return {.certified = kInfinity, .probabilistic = kInfinity, .log_sum_exp = kInfinity};
  const Concentration c = concentration_of(terms, weights);
  const double root = c.root_squares;
  // The logarithm of a weight: polynomials reduce scores of at most 126 below the largest.
  const double of_weights = r.weights + 88.0 * r.unit;
  const double log_error = known(scores.certified + of_weights / (1.0 - of_weights));

  const bool is_alone = weights.keys == 1.0 && !terms.has_sink;
  // Weights times values: by the range of values, or by their spread under the weights.
  const bool is_known = log_error < 20.0;
  const double growth = is_known ? std::expm1(log_error) : 0.0,
               share = is_known ? moved_by(growth, c.least_largest) : 1.0;
  double moved = is_alone ? 0.0 : share * v.range;
  if (!terms.has_sink && log_error < 1.0) {
    const double spread =
        std::sqrt(std::min(square(v.range) / 4.0, root * std::sqrt(v.fourth_powers)));
    moved = std::min(moved, 0.5 * growth * (growth + 2.0) * spread);  // exp sinh
  }
  if (!is_alone) moved += c.lost * v.range;
  const double of_values =
      std::min(v.error, root * std::sqrt(v.error_squares)) + r.flushed * v.largest_scale;
  const double magnitude = std::min(v.largest, v.center + root * std::sqrt(v.squares)) + of_values;
  // Errors of the sum of weighted values, and of that of weights, which it is divided by.
  const double sum = sum_error(r), quotient = 2.0 * sum / (1.0 - sum),
               of_sums = (quotient + 0x1p-24) * magnitude + kTiny;

  RowBounds bounds;
  bounds.certified = known((moved + of_values + of_sums) * kUpward);
  // Errors of weights by the largest of them, and of their sum.
  bounds.log_sum_exp = log_error + c.lost / std::max(1e-300, 1.0 - c.lost) + quotient;

  bounds.probabilistic = bounds.certified;
  if (terms.deviations == 0.0) return bounds;
  const double spread = v.rows > 0.0 ? v.squares / v.rows : 0.0,
               errors = v.rows > 0.0 ? v.error_squares / v.rows : 0.0,
               each = r.weights + 12.0 * r.unit,
               lost = 2.0 * r.lost * std::min(1.0, weights.largest),
               sums = kWalk * std::sqrt(r.sums * r.unit) * (v.mean + root * std::sqrt(spread));
  const double moves = is_alone ? 0.0 : variance_if_independent(c.least_largest, root);
  const double variance = (scores.variance + square(each) / 3.0) * moves * spread +
                          weights.keys * square(lost) * spread + square(root) * errors +
                          square(sums);
  bounds.probabilistic =
      std::min(bounds.certified,
               known((terms.deviations * std::sqrt(variance) + 0x1p-24 * v.largest * root + kTiny) *
                     kUpward));
  return bounds;
}

}  // namespace octavo
