// automatic: looks at magnitudes and at a few rows, takes the cheapest rung that is predicted to
// meet the tolerance for each range of rows, and does rows again that came out more peaked than the
// rows looked at.
#include "octavo/ops/attention_auto_internal.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "octavo/ops/attention_predict_internal.h"
#include "octavo/ops/attention_rungs_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kRowsPerRange = 128, kFewRows = 8;
constexpr double kWorst = 2.0;  // n_eff: errors of weights are largest where two keys share a row
constexpr std::string_view kOp = "attention";

std::vector<AttentionSurvey> survey(const AttentionCall& call, const AttentionStack& of,
                                    std::span<const std::int64_t> lengths, std::int64_t per_range,
                                    const Exec& exec) {
  const std::int64_t step = std::max<std::int64_t>(1, per_range);
  const std::int64_t ranges = (of.rows() + step - 1) / step;
  std::vector<AttentionSurvey> result(static_cast<std::size_t>(of.batches() * of.heads() * ranges));
  if (result.empty()) return result;
  run_attention_survey(exec, call.options,
                       {.batches = of.batches(),
                        .heads = of.heads(),
                        .of = of.operand(),
                        .lengths = lengths.empty() ? nullptr : lengths.data(),
                        .rows_per_range = step,
                        .result = result.data()});
  return result;
}

class Chooser {
 public:
  Chooser(const AttentionCall& call, const AttentionResult& result, const Exec& exec)
      : call_(call), result_(result), exec_(exec) {
    const AttentionMask& mask = call.options.mask;
    const std::int64_t keys = call.k.rows();
    // One temporary at a time.
    q_ = survey(call, turned(call.q, mask.query_lengths, false, true), mask.query_lengths,
                kRowsPerRange, exec);
    k_turned_ =
        survey(call, turned(call.k, mask.key_lengths, true, true), mask.key_lengths, keys, exec);
    k_smooth_ =
        survey(call, turned(call.k, mask.key_lengths, true, false), mask.key_lengths, keys, exec);
    v_ = survey(call, call.v, mask.key_lengths, keys, exec);
    copy_ = {};
  }

  void run() {
    cut_ranges();
    std::int64_t rows = 0;
    for (const AttentionChoice& choice : choices_) rows += choice.rows.count;
    // To look costs two rows; where there are hardly more, they are taken to be as bad as can be.
    const bool few = rows < kFewRows * call_.q.batches() * call_.q.heads();
    if (few) {
      take_the_worst();
    } else {
      look_at_rows();
    }
    choose(few);
    std::map<AttentionRung, std::vector<AttentionRange>> by_rung;
    for (const AttentionChoice& choice : choices_) by_rung[choice.rung].push_back(choice.rows);
    largest_weight_.assign(rows_in_all(), 0.0F);
    for (const auto& [rung, ranges] : by_rung) run_rung(rung, ranges);
    redo();
    if (call_.options.report != nullptr) {
      call_.options.report->choices = choices_;
      call_.options.report->redone = redone_;
    }
  }

 private:
  [[nodiscard]] std::size_t rows_in_all() const {
    return static_cast<std::size_t>(call_.q.batches() * call_.q.heads() * call_.q.rows());
  }
  [[nodiscard]] std::size_t index_of(const AttentionRange& range, std::int64_t row) const {
    return static_cast<std::size_t>((range.batch * call_.q.heads() + range.head) * call_.q.rows() +
                                    row);
  }

  // Values as balanced would quantize them; codes as they are.
  AttentionStack turned(const AttentionStack& of, std::span<const std::int64_t> lengths,
                        bool smooth, bool hadamard) {
    if (of.is_quantized() || of.rows() == 0) return of;
    std::vector<float> mean(static_cast<std::size_t>(of.batches() * of.heads() * of.cols()));
    copy_ = prepared(call_, of, lengths, smooth ? mean.data() : nullptr, hadamard, false, exec_);
    return AttentionStack(Operand(copy_), kOp, "a copy");
  }

  [[nodiscard]] RangeFacts facts_of(const AttentionRange& range) const {
    const std::int64_t ranges = (call_.q.rows() + kRowsPerRange - 1) / kRowsPerRange;
    const AttentionJob job = call_.job();
    const auto kv =
        static_cast<std::size_t>(range.batch * call_.k.heads() + job.kv_head(range.head));
    const auto type_of = [](const AttentionStack& stack) {
      return stack.is_quantized() ? DType::code : stack.elements().dtype;
    };
    RangeFacts facts{
        .kv = kv,
        .softmax_scale = job.softmax_scale,
        .head_size = static_cast<double>(call_.q.cols()),
        .q = q_[static_cast<std::size_t>((range.batch * call_.q.heads() + range.head) * ranges +
                                         range.first / kRowsPerRange)],
        .q_type = type_of(call_.q),
        .k_type = type_of(call_.k),
        .v_type = type_of(call_.v),
        .log_sum_exp = result_.log_sum_exp != nullptr};
    if (call_.k.rows() > 0) {
      facts.k_turned = k_turned_[kv];
      facts.k_smooth = k_smooth_[kv];
      facts.v = v_[kv];
    }
    return facts;
  }

  // Keys as they are given are looked at where a rung that rounds them comes into question.
  double predicted(AttentionRung rung, RangeFacts facts, double n_eff) {
    if (rounds_given_keys(rung) && call_.k.rows() > 0) {
      if (k_given_.empty())
        k_given_ = survey(call_, call_.k, call_.options.mask.key_lengths, call_.k.rows(), exec_);
      facts.k_given = k_given_[facts.kv];
    }
    return predicted_error(rung, facts, n_eff);
  }

  // What the caller wants, in pieces that lie in one range of the survey.
  void cut_ranges() {
    const auto cut = [&](AttentionRange range) {
      while (range.count > 0) {
        const std::int64_t count =
            std::min(range.count, kRowsPerRange - range.first % kRowsPerRange);
        choices_.push_back({.rows = {range.batch, range.head, range.first, count}});
        range.first += count;
        range.count -= count;
      }
    };
    if (!call_.options.ranges.empty()) {
      for (const AttentionRange& range : call_.options.ranges) cut(range);
      return;
    }
    for (std::int64_t batch = 0; batch < call_.q.batches(); ++batch)
      for (std::int64_t head = 0; head < call_.q.heads(); ++head)
        cut({.batch = batch, .head = head, .first = 0, .count = call_.q.rows()});
  }

  // n_eff of the row whose query is the longest and, where rows see different keys, of the first
  // and the last one: exp(2 lse(c) - lse(2c)) = (sum p)^2 / sum p^2.
  void look_at_rows() {
    const bool masked = call_.job().left >= 0 || call_.job().right >= 0;
    std::vector<AttentionRange> rows;
    for (AttentionChoice& choice : choices_) {
      const AttentionRange& range = choice.rows;
      std::vector<std::int64_t> looked_at{
          std::clamp(facts_of(range).q.row, range.first, range.first + range.count - 1)};
      if (masked) {
        looked_at.push_back(range.first);
        looked_at.push_back(range.first + range.count - 1);
      }
      std::sort(looked_at.begin(), looked_at.end());
      looked_at.erase(std::unique(looked_at.begin(), looked_at.end()), looked_at.end());
      for (const std::int64_t row : looked_at) rows.push_back({range.batch, range.head, row, 1});
      looked_at_.push_back(looked_at);
    }
    RungInputs inputs = rung_inputs(call_, AttentionRung::bf16, exec_);
    AttentionJob job = inputs.job;
    job.out = result_.out;  // is written again below
    job.ranges = rows.data();
    job.range_count = static_cast<std::int64_t>(rows.size());
    std::vector<float> once(rows_in_all()), twice(rows_in_all());
    job.log_sum_exp = once.data();
    run_attention(exec_, call_.options, job);
    job.log_sum_exp = twice.data();
    job.softmax_scale *= 2.0;
    job.bias.factor *= 2.0F;
    run_attention(exec_, call_.options, job);
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      AttentionChoice& choice = choices_[i];
      choice.n_eff = HUGE_VAL;
      for (const std::int64_t row : looked_at_[i]) {
        const std::size_t at = index_of(choice.rows, row);
        if (once[at] == -HUGE_VALF) continue;  // sees nothing, and has nothing to be wrong about
        const double n_eff =
            std::exp(2.0 * static_cast<double>(once[at]) - static_cast<double>(twice[at]));
        // P is rounded in these, so that a row with one key may come out below 1.
        if (!(n_eff >= choice.n_eff)) choice.n_eff = n_eff < 1.0 ? 1.0 : n_eff;
      }
      // None of them sees a key; others may.
      if (std::isinf(choice.n_eff)) choice.n_eff = kWorst;
    }
  }

  void take_the_worst() {
    for (AttentionChoice& choice : choices_) {
      choice.n_eff = kWorst;
      looked_at_.push_back({choice.rows.first});
    }
  }

  void choose(bool few) {
    const double tolerance = call_.options.atol;
    for (AttentionChoice& choice : choices_) {
      const RangeFacts facts = facts_of(choice.rows);
      choice.tolerance = tolerance;
      std::string tried;
      for (const AttentionRung rung : kRungsByCost) {
        if (!takes(rung, facts)) continue;
        choice.rung = rung;
        choice.predicted = predicted(rung, facts, choice.n_eff);
        if (choice.predicted <= tolerance) break;
        if (rung != kRungsByCost.back())
          tried += text(tried.empty() ? "" : ", ", name_of(rung), " ", choice.predicted);
      }
      choice.reason =
          choice.predicted <= tolerance
              ? text("the cheapest within ", tolerance, tried.empty() ? "" : "; above it: ", tried)
              : text("none is within ", tolerance, ": ", tried, "; this is the most exact one");
      if (few) choice.reason += "; too few rows to look at any: n_eff is taken to be 2";
    }
  }

  void run_rung(AttentionRung rung, std::span<const AttentionRange> ranges) {
    RungInputs inputs = rung_inputs(call_, rung, exec_);
    AttentionJob job = inputs.job;
    job.out = result_.out;
    job.log_sum_exp = result_.log_sum_exp;
    job.ranges = ranges.data();
    job.range_count = static_cast<std::int64_t>(ranges.size());
    job.largest_weight = largest_weight_.data();
    run_attention(exec_, call_.options, job);
  }

  // One over the largest weight is a lower bound of n_eff; for rows that are much like those looked
  // at, n_eff is as many times it as there.
  void redo() {
    std::map<AttentionRung, std::vector<AttentionRange>> again;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const AttentionChoice& choice = choices_[i];
      if (choice.rung == kRungsByCost.back()) continue;
      const RangeFacts facts = facts_of(choice.rows);
      double sample = 0.0;
      for (const std::int64_t row : looked_at_[i])
        sample = std::max(sample, static_cast<double>(largest_weight_[index_of(choice.rows, row)]));
      const double ratio = std::max(1.0, choice.n_eff * sample);
      for (std::int64_t row = choice.rows.first; row < choice.rows.first + choice.rows.count;
           ++row) {
        const double weight = static_cast<double>(largest_weight_[index_of(choice.rows, row)]);
        if (weight == 0.0) continue;
        const double n_eff = std::max(1.0, (weight <= 2.0 * sample ? ratio : 1.0) / weight);
        if (n_eff >= choice.n_eff || predicted(choice.rung, facts, n_eff) <= choice.tolerance)
          continue;
        for (const AttentionRung rung : kRungsByCost) {
          const bool last = rung == kRungsByCost.back();
          if (!takes(rung, facts) ||
              (!last && !(predicted(rung, facts, n_eff) <= choice.tolerance)))
            continue;
          if (rung != choice.rung)
            again[rung].push_back({choice.rows.batch, choice.rows.head, row, 1});
          break;
        }
      }
    }
    for (const auto& [rung, rows] : again) {
      redone_ += static_cast<std::int64_t>(rows.size());
      run_rung(rung, rows);
    }
  }

  const AttentionCall& call_;
  const AttentionResult& result_;
  const Exec& exec_;
  Tensor copy_{};
  std::vector<AttentionSurvey> q_, k_turned_, k_smooth_, k_given_, v_;
  std::vector<AttentionChoice> choices_;
  std::vector<std::vector<std::int64_t>> looked_at_;
  std::vector<float> largest_weight_;
  std::int64_t redone_ = 0;
};

}  // namespace

void attention_automatic(const AttentionCall& call, const AttentionResult& result,
                         const Exec& exec) {
  Chooser(call, result, exec).run();
}

}  // namespace octavo
