#include "octavo/ops/attention/attention_posteriori_internal.h"

#include <algorithm>
#include <cmath>

namespace octavo {

PosterioriCheck::PosterioriCheck(const AttentionCall& call, const AttentionResult& result,
                                 AttentionFacts& facts)
    : call_(call), result_(result), facts_(facts) {
  const auto rows = static_cast<std::size_t>(call.q.batches() * call.q.heads() * call.q.rows());
  largest_weight_.assign(rows, 0.0F);
  if (result.log_sum_exp == nullptr) own_lse_.assign(rows, 0.0F);
}

void PosterioriCheck::write_with(AttentionJob& job) {
  job.out = result_.out;
  job.largest_weight = largest_weight_.data();
  job.log_sum_exp = result_.log_sum_exp;
  if (job.log_sum_exp != nullptr) return;
  job.log_sum_exp = own_lse_.data();
  job.key_shift = nullptr;  // log-sum-exp of the scores as computed, without the shift
}

// A log-sum-exp with the sink in it is at least the sink. Rows that were not computed have any
// number.
void PosterioriCheck::find_shares(const float* lse) {
  const AttentionJob job = call_.job();
  if (!job.sinks.exist()) return;
  shares_.resize(largest_weight_.size());
  for (std::size_t at = 0; at < shares_.size(); ++at) {
    const std::int64_t head = static_cast<std::int64_t>(at) / job.queries % job.heads;
    const double below = static_cast<double>(lse[at]) - static_cast<double>(job.sinks.at(head));
    shares_[at] = below > 0.0 ? static_cast<float>(-std::expm1(-below)) : 0.0F;
  }
}

std::size_t PosterioriCheck::index_of(const AttentionRange& range, std::int64_t row) const {
  return static_cast<std::size_t>((range.batch * call_.q.heads() + range.head) * call_.q.rows() +
                                  row);
}

// 1 / (largest weight) is a lower bound of n_eff; for rows similar to the sample rows, n_eff is
// that bound times the ratio found there. The output shows rows whose keys are not independent, and
// the outputs of a range show whether keys are correlated.
std::vector<RowFacts> PosterioriCheck::facts_of(const AttentionChoice& choice,
                                                std::span<const std::int64_t> like, double alike) {
  const float* lse = result_.log_sum_exp != nullptr ? result_.log_sum_exp : own_lse_.data();
  double sample = 0.0;
  for (const std::int64_t row : like)
    sample = std::max(sample, static_cast<double>(largest_weight_[index_of(choice.rows, row)]));
  const double ratio = std::max(1.0, choice.n_eff * sample);
  // Where the statistics of V are of some rows only, other rows may be larger, and the output shows
  // it.
  const bool is_guessed = facts_.values_step() > 1;
  const bool checks_outputs =
      choice.rung != kRungsByCost.back() &&
      (is_guessed || !facts_.is_safe_for_any_row(choice.rung, choice.rows, choice.tolerance));
  if (shares_.empty()) find_shares(lse);
  if (checks_outputs && !has_outputs_) facts_.find_output_statistics(result_.out, shares_);
  has_outputs_ |= checks_outputs;
  std::vector<RowFacts> rows(static_cast<std::size_t>(choice.rows.count));
  KeysAlike of_range;
  // The largest element of a row may be this many standard deviations by chance, as in a probe.
  const double by_chance = std::sqrt(2.0 * std::log(static_cast<double>(call_.v.cols()))) + 1.0;
  for (std::int64_t r = 0; r < choice.rows.count; ++r) {
    RowFacts& row = rows[static_cast<std::size_t>(r)];
    const std::size_t at = index_of(choice.rows, choice.rows.first + r);
    const auto weight = static_cast<double>(largest_weight_[at]);
    row.n_eff = HUGE_VAL;
    if (weight == 0.0) continue;
    row.n_eff = std::max(1.0, (weight <= 2.0 * sample ? ratio : 1.0) / weight);
    // Where the sink has all the weight its log-sum-exp says nothing of scores, which do not count.
    if (shares_.empty() || shares_[at] > 0.0F) row.score = facts_.size_of_scores(lse[at]);
    if (!checks_outputs) continue;
    const MeanDeviation mean_deviation =
        facts_.deviation_of_output(choice.rows, choice.rows.first + r);
    row.different = facts_.different_keys(choice.rows, mean_deviation);
    if (is_guessed) {
      row.values = mean_deviation.squares / static_cast<double>(call_.v.cols());
      raise(row.values, mean_deviation.most / by_chance * (mean_deviation.most / by_chance));
    }
    of_range.add(row.n_eff, mean_deviation);
  }
  if (!checks_outputs) return rows;
  raise(alike, facts_.keys_alike(choice.rows, of_range));
  for (RowFacts& row : rows) lower(row.different, row.n_eff / alike);
  return rows;
}

}  // namespace octavo
