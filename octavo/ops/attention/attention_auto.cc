// Rung `auto`: computes statistics and sample rows, chooses for each range of rows the cheapest
// rung whose modelled error meets the tolerance and whose probe on the sample rows confirms it, and
// recomputes rows that fail the posteriori check.
#include "octavo/ops/attention/attention_auto_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/ops/attention/attention_bounded_internal.h"
#include "octavo/ops/attention/attention_error_model_internal.h"
#include "octavo/ops/attention/attention_explanation_internal.h"
#include "octavo/ops/attention/attention_posteriori_internal.h"
#include "octavo/ops/attention/attention_probe_internal.h"
#include "octavo/ops/attention/attention_rungs_internal.h"
#include "octavo/ops/attention/attention_sample_rows_internal.h"
#include "octavo/ops/attention/attention_statistics_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kRowsPerRange = AttentionFacts::kRowsPerRange;
constexpr double kWorst = 2.0;  // n_eff: errors of weights are largest where two keys share a row
constexpr std::int64_t kMinSampleRows = 16;  // per head, where it has four times as many rows
constexpr std::size_t kMaxProbedRows = 64;   // per head

class Chooser {
 public:
  Chooser(const AttentionCall& call, const AttentionResult& result, const Exec& exec)
      : call_(call),
        result_(result),
        exec_(exec),
        is_decode_(is_decode_call(call)),
        facts_(call, result.log_sum_exp != nullptr, is_decode_, exec),
        rungs_(call, exec),
        sample_rows_(call, exec),
        posteriori_(call, result, facts_) {}

  void run() {
    for (const AttentionRange& range : call_.ranges_of(kRowsPerRange))
      choices_.push_back({.rows = range});
    of_choice_.resize(choices_.size());
    for (AttentionChoice& choice : choices_) {
      choice.tolerance = tolerance_of(choice.rows).left;
      choice.n_eff = kWorst;
    }
    if (!is_decode_) {
      find_unsampled_ranges();
      choose_sample_rows();
    }
    choose();
    std::map<AttentionRung, std::vector<AttentionRange>> by_rung;
    for (const AttentionChoice& choice : choices_) by_rung[choice.rung].push_back(choice.rows);
    // Without ranges, the decode kernels may take it.
    const bool is_one = by_rung.size() == 1 && call_.options.ranges.empty();
    for (const auto& [rung, ranges] : by_rung)
      run_rung(rung, is_one ? std::span<const AttentionRange>() : ranges);
    redo();
    if (call_.options.report != nullptr) {
      call_.options.report->choices = choices_;
      call_.options.report->redone = redone_;
    }
  }

 private:
  // What the sample rows of a range tell of its worst row.
  struct OfChoice {
    std::vector<std::size_t> sampled;  // indices into sample_rows_
    double different = HUGE_VAL, score = 0.0;
    bool is_unsampled = false;
  };

  // The 16-bit rung that rounds the inputs least.
  [[nodiscard]] AttentionRung narrow_rung(const AttentionRange& range) const {
    return may_take(AttentionRung::f16, range) ? AttentionRung::f16 : AttentionRung::bf16;
  }
  // Does it meet the tolerance for any row, whatever its weights?
  [[nodiscard]] bool is_safe(const AttentionChoice& choice) {
    const AttentionRung rung = narrow_rung(choice.rows);
    return may_take(rung, choice.rows) &&
           facts_.is_safe_for_any_row(rung, choice.rows, choice.tolerance);
  }
  [[nodiscard]] bool has_cheaper(const AttentionChoice& choice) {
    for (const AttentionRung rung : kRungsByCost) {
      if (rung == AttentionRung::bf16) break;
      if (facts_.is_possible(rung, choice.rows, choice.tolerance)) return true;
    }
    return false;
  }

  // Sampling a head costs as much as packing its keys: where less than half of its rows could use a
  // rung cheaper than 16 bits, and those are safe, no row is sampled.
  void find_unsampled_ranges() {
    std::map<std::size_t, std::int64_t> balance;  // rows with a cheaper rung, less those without
    for (const AttentionChoice& choice : choices_)
      balance[head_of(choice.rows)] += has_cheaper(choice) ? choice.rows.count : -choice.rows.count;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      of_choice_[i].is_unsampled = balance[head_of(choices_[i].rows)] < 0 && is_safe(choices_[i]);
  }

  [[nodiscard]] std::size_t head_of(const AttentionRange& range) const {
    return static_cast<std::size_t>(range.batch * call_.q.heads() + range.head);
  }

  // Sample rows of a range: the row with the longest query, some evenly spaced rows (at least one
  // in the middle) and, where rows see different keys, the first and the last.
  [[nodiscard]] std::vector<std::int64_t> sample_positions_in(const AttentionRange& range,
                                                              std::int64_t ranges_of_head) {
    const std::int64_t last = range.first + range.count - 1;
    const std::int64_t wanted = std::max<std::int64_t>(
        2, std::min(range.count / 4, kMinSampleRows / std::max<std::int64_t>(1, ranges_of_head)));
    std::vector<std::int64_t> places{std::clamp(facts_.longest_query(range), range.first, last)};
    for (std::int64_t i = 1; i < wanted; ++i)
      places.push_back(range.first + i * range.count / wanted);
    if (call_.job().left >= 0 || call_.job().right >= 0)
      places.insert(places.end(), {range.first, last});
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    return places;
  }

  void choose_sample_rows() {
    std::map<std::size_t, std::int64_t> ranges_of_head;
    for (const AttentionChoice& choice : choices_) ++ranges_of_head[head_of(choice.rows)];
    std::vector<SampleRow> rows;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (of_choice_[i].is_unsampled) continue;
      const AttentionRange& range = choices_[i].rows;
      for (const std::int64_t row : sample_positions_in(range, ranges_of_head[head_of(range)])) {
        of_choice_[i].sampled.push_back(rows.size());
        rows.push_back({.batch = range.batch, .head = range.head, .row = row});
      }
    }
    if (rows.empty()) return;
    sample_rows_.sample(std::move(rows));
    std::map<std::size_t, KeysAlike> by_head;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      for (const std::size_t at : of_choice_[i].sampled)
        by_head[head_of(choices_[i].rows)].add(
            sample_rows_.rows()[at].n_eff,
            facts_.mean_deviation(choices_[i].rows, sample_rows_.exact(at),
                                  sample_rows_.rows()[at].share));
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (of_choice_[i].is_unsampled) continue;
      AttentionChoice& choice = choices_[i];
      alike_[head_of(choice.rows)] = facts_.keys_alike(choice.rows, by_head[head_of(choice.rows)]);
      choice.n_eff = HUGE_VAL;
      for (const std::size_t at : of_choice_[i].sampled) {
        const RowFacts row = facts_of_sample(choice.rows, at);
        lower(choice.n_eff, row.n_eff);
        lower(of_choice_[i].different, row.different);
        raise(of_choice_[i].score, row.score);
      }
      // None of them sees a key; others may.
      if (std::isinf(choice.n_eff)) choice.n_eff = kWorst;
    }
  }

  [[nodiscard]] RowFacts facts_of_sample(const AttentionRange& range, std::size_t at) {
    const SampleRow& row = sample_rows_.rows()[at];
    RowFacts facts{row.n_eff,
                   facts_.different_keys(
                       range, facts_.mean_deviation(range, sample_rows_.exact(at), row.share)),
                   facts_.size_of_scores(row.lse)};
    lower(facts.different, row.n_eff / alike_[head_of(range)]);
    return facts;
  }

  // What remains of atol after rounding the output to its type; rtol covers that rounding first.
  // Where the rounding alone exceeds atol, a more expensive rung does not help: the report says so.
  struct Tolerance {
    double left = 0.0, rounding = 0.0;
    bool is_lost = false;
  };
  [[nodiscard]] Tolerance tolerance_of(const AttentionRange& range) const {
    const AttentionOptions& options = call_.options;
    const double beyond = rounding_of(result_.out.first.values.dtype) - options.rtol;
    const double rounding = beyond > 0.0 ? beyond * facts_.largest_value(range) : 0.0;
    // Rounding to f32 is far below the error of any rung.
    if (!(rounding > 0.0) || result_.out.first.values.dtype == DType::f32)
      return {.left = options.atol};
    const bool is_lost = rounding >= options.atol;
    return {.left = is_lost ? options.atol : options.atol - rounding,
            .rounding = rounding,
            .is_lost = is_lost};
  }

  // Rung by rung for all ranges that have none yet, so that a rung is probed once for all heads.
  void choose() {
    std::vector<std::string> tried(choices_.size());
    std::vector<bool> open(choices_.size());
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      open[i] = !of_choice_[i].is_unsampled;
      if (open[i]) continue;
      const AttentionRung rung = narrow_rung(choices_[i].rows);
      choices_[i].rung = rung;
      choices_[i].predicted = facts_.error_without_averaging(rung, choices_[i].rows);
    }
    for (const AttentionRung rung : kRungsByCost) {
      const bool last = rung == kRungsByCost.back();
      std::vector<bool> wanted(choices_.size(), false);
      for (std::size_t i = 0; i < choices_.size(); ++i) {
        if (!open[i] || !may_take(rung, choices_[i].rows)) continue;
        choices_[i].rung = rung;
        choices_[i].predicted =
            facts_.predicted(rung, choices_[i].rows,
                             {choices_[i].n_eff, of_choice_[i].different, of_choice_[i].score});
        wanted[i] = choices_[i].predicted <= choices_[i].tolerance;
      }
      if (!is_decode_ && !last) probe_rows(rung, wanted);
      for (std::size_t i = 0; i < choices_.size(); ++i) {
        if (!open[i] || !may_take(rung, choices_[i].rows)) continue;
        if (wanted[i] && !is_decode_ && !last)
          choices_[i].predicted = corrected(rung, choices_[i].rows, choices_[i].predicted);
        open[i] = !last && !(choices_[i].predicted <= choices_[i].tolerance);
        if (open[i])
          tried[i] += text(tried[i].empty() ? "" : ", ", name_of(rung), " ", choices_[i].predicted);
      }
    }
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const Tolerance of_output = tolerance_of(choices_[i].rows);
      choices_[i].explanation =
          explanation_for(choices_[i], {.tried = tried[i],
                                        .is_unsampled = of_choice_[i].is_unsampled,
                                        .is_decode = is_decode_,
                                        .is_lost = of_output.is_lost,
                                        .rounding = of_output.rounding,
                                        .out = result_.out.first.values.dtype,
                                        .values_step = facts_.values_step(),
                                        .knows_values = knows_values(choices_[i].rows)});
    }
  }

  // The cost of decode attention is reading K and V once. A rung that rounds them first is no
  // cheaper than f32, whatever its products cost, and its error model would need statistics of all
  // of K.
  [[nodiscard]] bool may_take(AttentionRung rung, const AttentionRange& range) const {
    if (!rungs_.have(rung)) return false;
    if (!facts_.takes(rung, range)) return false;
    if (!is_decode_ || rung == kRungsByCost.back()) return true;
    return (rung == AttentionRung::bf16 || rung == AttentionRung::f16) &&
           facts_.is_as_given(rung, range) && knows_values(range);
  }

  // False where only some rows of V have statistics, and those are zeros.
  [[nodiscard]] bool knows_values(const AttentionRange& range) const {
    return facts_.values_step() == 1 || facts_.largest_value(range) != 0.0;
  }

  // Fills probes_ of the heads of ranges that want this rung.
  void probe_rows(AttentionRung rung, const std::vector<bool>& wanted) {
    std::map<std::size_t, std::vector<std::pair<std::size_t, std::size_t>>> by_head;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (wanted[i] &&
          !(facts_.error_without_averaging(rung, choices_[i].rows) <= choices_[i].tolerance))
        for (const std::size_t at : of_choice_[i].sampled)
          by_head[head_of(choices_[i].rows)].push_back({at, i});
    std::vector<std::size_t> which;
    for (auto& [head, rows] : by_head) {
      const std::size_t step = (rows.size() + kMaxProbedRows - 1) / kMaxProbedRows;
      std::vector<std::pair<std::size_t, std::size_t>> some;
      for (std::size_t r = 0; r < rows.size(); r += step) some.push_back(rows[r]);
      rows = some;
      for (const auto& [at, choice] : rows) which.push_back(at);
    }
    if (which.empty()) return;
    const std::vector<float> got = sample_rows_.probed(inputs_of(rung).job, which);
    const auto width = static_cast<std::size_t>(call_.v.cols());
    std::size_t next = 0;
    for (const auto& [head, rows] : by_head) {
      std::vector<ProbedRow> tried;
      for (const auto& [at, i] : rows) {
        const RowFacts row = facts_of_sample(choices_[i].rows, at);
        tried.push_back({.deviation = facts_.predicted(rung, choices_[i].rows, row) / kDeviations,
                         .exact = sample_rows_.exact(at),
                         .got = std::span(got).subspan(next++ * width, width)});
      }
      ProbeChannels channels = facts_.channels(choices_[rows[0].second].rows);
      channels.are_alike = alike_[head] > 1.0;
      probes_[{rung, head}] = judge_probe(tried, channels);
    }
  }

  [[nodiscard]] double corrected(AttentionRung rung, const AttentionRange& range,
                                 double predicted) const {
    const auto probe = probes_.find({rung, head_of(range)});
    return probe == probes_.end() ? predicted : probe->second.corrected(predicted);
  }

  const RungInputs& inputs_of(AttentionRung rung) {
    auto& inputs = inputs_[rung];
    if (!inputs) inputs = rung_inputs(call_, rung, exec_);
    return *inputs;
  }

  // No ranges: all rows.
  void run_rung(AttentionRung rung, std::span<const AttentionRange> ranges) {
    AttentionJob job = inputs_of(rung).job;
    posteriori_.write_with(job);
    job.p_amax = result_.p_amax;
    job.ranges = ranges.empty() ? nullptr : ranges.data();
    job.range_count = static_cast<std::int64_t>(ranges.size());
    run_bounded(call_, inputs_of(rung), job, exec_);
  }

  // Recomputes rows that fail the posteriori check, on the cheapest rung that meets the tolerance.
  void redo() {
    std::map<AttentionRung, std::vector<AttentionRange>> again;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      AttentionChoice& choice = choices_[i];
      const double negligible = facts_.negligible_score(choice.rows, choice.tolerance);
      LargeScores large;
      std::vector<std::int64_t> like;
      for (const std::size_t at : of_choice_[i].sampled)
        like.push_back(sample_rows_.rows()[at].row);
      if (is_decode_) like.push_back(choice.rows.first);
      const auto alike = alike_.find(head_of(choice.rows));
      const std::vector<RowFacts> rows =
          posteriori_.facts_of(choice, like, alike == alike_.end() ? 1.0 : alike->second);
      for (std::int64_t r = 0; r < choice.rows.count; ++r) {
        RowFacts row = rows[static_cast<std::size_t>(r)];
        if (row.n_eff == HUGE_VAL) continue;  // sees no key
        const bool is_negligible = row.score <= negligible;
        if (is_negligible) row.score = 0.0;
        if (!is_negligible) {
          raise(large.score, row.score);
          raise(large.predicted, facts_.predicted(kRungsByCost.back(), choice.rows, row));
        }
        if (choice.rung == kRungsByCost.back()) continue;
        if (row.n_eff >= choice.n_eff && row.different >= choice.n_eff && row.values == 0.0 &&
            (is_negligible || row.score <= of_choice_[i].score))
          continue;
        if (is_within(choice.rung, choice, row)) continue;
        const AttentionRung rung = cheapest_within(choice, row);
        if (rung != choice.rung)
          again[rung].push_back({choice.rows.batch, choice.rows.head, choice.rows.first + r, 1});
      }
      if (large.predicted > choice.tolerance) {
        raise(choice.predicted, large.predicted);
        choice.explanation = explanation_for_large_scores(choice.tolerance, large.score);
      }
    }
    for (const auto& [rung, rows] : again) {
      redone_ += static_cast<std::int64_t>(rows.size());
      run_rung(rung, rows);
    }
  }
  // The error of f32 itself in the scores of a range.
  struct LargeScores {
    double score = 0.0, predicted = 0.0;
  };

  [[nodiscard]] AttentionRung cheapest_within(const AttentionChoice& choice, const RowFacts& row) {
    for (const AttentionRung rung : kRungsByCost)
      if (may_take(rung, choice.rows) && is_within(rung, choice, row)) return rung;
    return kRungsByCost.back();
  }
  [[nodiscard]] bool is_within(AttentionRung rung, const AttentionChoice& choice,
                               const RowFacts& row) {
    return corrected(rung, choice.rows, facts_.predicted(rung, choice.rows, row)) <=
           choice.tolerance;
  }

  const AttentionCall& call_;
  const AttentionResult& result_;
  const Exec& exec_;
  bool is_decode_;
  AttentionFacts facts_;
  BoundedRungs rungs_;
  SampleRows sample_rows_;
  PosterioriCheck posteriori_;
  std::vector<AttentionChoice> choices_;
  std::vector<OfChoice> of_choice_;
  std::map<AttentionRung, std::optional<RungInputs>> inputs_;
  std::map<std::pair<AttentionRung, std::size_t>, ProbeOutcome> probes_;
  std::map<std::size_t, double> alike_;  // of a head: how many keys act as one
  std::int64_t redone_ = 0;
};

}  // namespace

void attention_automatic(const AttentionCall& call, const AttentionResult& result,
                         const Exec& exec) {
  Chooser(call, result, exec).run();
}

}  // namespace octavo
