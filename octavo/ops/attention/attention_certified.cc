// Rung `auto` by certified bounds: norms of Q, K and V as they are given bound what each rung can
// round off them, whatever the weights will be. Each range of rows takes the cheapest rung whose
// bound is within the tolerance; nothing is computed twice.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/ops/attention/attention_auto_internal.h"
#include "octavo/ops/attention/attention_bounded_internal.h"
#include "octavo/ops/attention/attention_error_model_internal.h"
#include "octavo/ops/attention/attention_operand_norms_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kRowsPerRange = 128;

// The most that a rung rounds off a row of Q or K, relative to its norm; and off V, relative to the
// largest value that a row sees, and to the largest of all, which its scale is made of.
struct RoundedOff {
  double q = 0.0, k = 0.0, v = 0.0, of_all_v = 0.0;
  bool smooths = false;  // keys are those given, less the mean of all
};

double of_values(DType given, DType kept) {
  if (given == kept || kept == DType::f64) return 0.0;
  if (kept == DType::f32) return given == DType::f64 ? 0x1p-24 : 0.0;
  return given == DType::f64 ? 0x1p-8 * 1.001 : 0x1p-8;
}

RoundedOff rounded_off(AttentionRung rung, const AttentionCall& call) {
  const auto type_of = [](const AttentionStack& stack) { return stack.elements().dtype; };
  const double root = std::sqrt(static_cast<double>(call.q.cols())),
               prepared = (std::log2(static_cast<double>(call.q.cols())) + 4.0) * 0x1p-24;
  // Half a step of e4m3, or where it is subnormal of a scale that takes the largest to 448. What a
  // scale and a quotient round is in the factor.
  const double e4m3 = 0x1p-4 * 1.0001 + root / 448.0 * 0x1p-10, int8 = root / 254.0 * 1.0001;
  const bool smooths = !rounds_given_keys(rung) && !call.sees_level();
  RoundedOff off;
  const auto each = [&](double of_qk, double of_v) {
    if (!call.q.is_quantized()) off.q = of_qk + prepared;
    if (!call.k.is_quantized()) off.k = of_qk + prepared;
    if (!call.v.is_quantized()) off.v = of_v;
    off.smooths = !call.k.is_quantized() && smooths;
  };
  switch (rung) {
    case AttentionRung::fast:
    case AttentionRung::strict:
      each(e4m3, 0x1p-4 * 1.0001);
      if (!call.v.is_quantized()) off.of_all_v = 0x1p-10 / 448.0 * 1.0001;
      return off;
    case AttentionRung::balanced:
      each(int8, of_values(type_of(call.v), DType::bf16));
      return off;
    default: {
      const DType kept = rung == AttentionRung::bf16 ? DType::bf16 : DType::f32;
      if (!call.q.is_quantized()) off.q = of_values(type_of(call.q), kept);
      if (!call.k.is_quantized()) off.k = of_values(type_of(call.k), kept);
      if (!call.v.is_quantized()) off.v = of_values(type_of(call.v), kept);
      return off;
    }
  }
}

NormedOperand as_given(const AttentionStack& stack) { return {.given = stack.operand()}; }

class CertifiedChooser {
 public:
  CertifiedChooser(const AttentionCall& call, const AttentionResult& result, const Exec& exec)
      : call_(call),
        options_(call.options),
        result_(result),
        exec_(exec),
        job_(call.job()),
        norms_(call, as_given(call.q), as_given(call.k), as_given(call.v), DType::f64, exec) {}

  void run() {
    for (const AttentionRange& range : call_.ranges_of(kRowsPerRange))
      choices_.push_back({.rows = range, .tolerance = tolerance_of(range)});
    std::vector<std::string> tried(choices_.size());
    std::vector<bool> open(choices_.size(), true);
    for (const AttentionRung rung : kRungsByCost) {
      const bool is_last = rung == kRungsByCost.back();
      if (!is_last && !takes(rung)) continue;
      if (!is_last && !is_promising(rung, open)) continue;
      const std::optional<BoundTerms> terms = bound_terms(call_, rung, exec_);
      if (!terms && !is_last) continue;
      for (std::size_t i = 0; i < choices_.size(); ++i) {
        if (!open[i]) continue;
        AttentionChoice& choice = choices_[i];
        choice.rung = rung;
        choice.predicted = terms ? bound_of(rung, choice, *terms) : HUGE_VAL;
        open[i] = !(choice.predicted <= choice.tolerance);
        if (open[i] && !is_last)
          tried[i] += text(tried[i].empty() ? "" : ", ", name_of(rung), " ", choice.predicted);
      }
    }
    for (std::size_t i = 0; i < choices_.size(); ++i) explain(choices_[i], open[i], tried[i]);
    run_rungs();
    if (options_.report != nullptr) options_.report->choices = choices_;
  }

 private:
  // One past the last key that a row of the range sees.
  [[nodiscard]] std::int64_t end_of(const AttentionRange& range) const {
    std::int64_t end = 0;
    for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
      const AttentionJob::Keys seen = job_.keys_of(range.batch, row);
      if (seen.begin < seen.end) end = std::max(end, seen.end);
    }
    return end;
  }

  // Of atol, what rounding of the output leaves; rtol covers that first.
  [[nodiscard]] double tolerance_of(const AttentionRange& range) const {
    const DType out = result_.out.first.values.dtype;
    const double least = least_output_rounding(out), rounding = output_rounding(out, 1.0) - least;
    if (rounding == 0.0) return options_.atol;
    const ValueNorms& v = norms_.values(range.batch, job_.kv_head(range.head), end_of(range));
    constexpr double kMostF16 = 65504.0;  // larger outputs are Inf
    if (out == DType::f16 && !(v.largest + options_.atol < kMostF16)) return 0.0;
    const double beyond = std::max(0.0, rounding - options_.rtol) * v.largest;
    return std::max(0.0, options_.atol - beyond - least) / (1.0 + rounding);
  }

  [[nodiscard]] bool takes(AttentionRung rung) const {
    const bool has_quantizers = options_.q_quantizer != nullptr ||
                                options_.k_quantizer != nullptr || options_.v_quantizer != nullptr;
    if (has_quantizers && (rung == AttentionRung::strict || rung == AttentionRung::fast))
      return false;
    if (rung == AttentionRung::f16)
      return is_f16_or_codes(call_.q) && is_f16_or_codes(call_.k) && is_f16_or_codes(call_.v);
    const bool smooths = !rounds_given_keys(rung) && !call_.k.is_quantized();
    if (smooths && (call_.sees_level() || result_.log_sum_exp != nullptr)) return false;
    return rung != AttentionRung::balanced || (!call_.q.is_quantized() && !call_.k.is_quantized());
  }

  // Could it be within the tolerance, if its kernels rounded nothing? Else it is not worth
  // quantizing for.
  [[nodiscard]] bool is_promising(AttentionRung rung, const std::vector<bool>& open) const {
    const BoundTerms none{.softmax_scale = job_.softmax_scale,
                          .soft_cap = job_.soft_cap,
                          .head_size = static_cast<double>(call_.q.cols()),
                          .has_sink = job_.sinks.exist()};
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (open[i] && bound_of(rung, choices_[i], none) <= choices_[i].tolerance) return true;
    return false;
  }

  // Of the worst row of a range, with weights of any concentration.
  [[nodiscard]] double bound_of(AttentionRung rung, const AttentionChoice& choice,
                                const BoundTerms& terms) const {
    const AttentionRange& range = choice.rows;
    const std::int64_t end = end_of(range), kv_head = job_.kv_head(range.head);
    // A sink of NaN or +inf makes NaN of all rows, whatever they see.
    if (job_.sinks.exist() && !(job_.sinks.at(range.head) < HUGE_VALF)) return HUGE_VAL;
    if (end == 0) return 0.0;
    const RoundedOff off = rounded_off(rung, call_);
    constexpr double kLeast = 0x1p-100;  // scales are at least 2^-126
    QueryNorms q;
    double bias = 0.0;
    for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
      raise(q.length, norms_.query(range.batch, range.head, row).length);
      raise(bias, bias_magnitude(job_, range.batch, range.head, row));
    }
    q.error = q.length * off.q + (off.q > 0.0 ? kLeast : 0.0);
    KeyNorms k = norms_.keys(range.batch, kv_head, end);
    // The mean is of all keys, also of those that no row of the range sees.
    if (off.smooths) k.longest += norms_.all_keys(range.batch, kv_head).longest;
    k.error = k.longest * off.k + (off.k > 0.0 ? kLeast : 0.0);
    ValueNorms v = norms_.values(range.batch, kv_head, end);
    v.error = v.largest * off.v + (off.v > 0.0 ? kLeast : 0.0);
    if (off.of_all_v > 0.0) {
      const ValueNorms& all = norms_.all_values(range.batch, kv_head);
      // What is not finite there makes the scale, and all values of the channel, NaN.
      v.error += all.squares < HUGE_VAL ? all.largest * off.of_all_v : HUGE_VAL;
    }
    v.error_squares = HUGE_VAL;
    // Rows of a range see different numbers of keys: those that see one are no exception here.
    const RowBounds bounds = row_bounds(
        terms, q, k, v, {.keys = static_cast<double>(std::max<std::int64_t>(2, end))}, bias);
    if (result_.log_sum_exp == nullptr) return bounds.certified;
    return std::max(bounds.certified, bounds.log_sum_exp);
  }

  void explain(AttentionChoice& choice, bool is_open, const std::string& tried) const {
    choice.explanation = is_open
                             ? text("no certified bound is within ", choice.tolerance, ": that of ",
                                    name_of(choice.rung), " is ", choice.predicted)
                             : text("its certified bound is within ", choice.tolerance);
    if (!tried.empty()) choice.explanation += text("; ", tried);
  }

  const RungInputs& inputs_of(AttentionRung rung) {
    std::optional<RungInputs>& inputs = inputs_[rung];
    if (!inputs) inputs = rung_inputs(call_, rung, exec_);
    return *inputs;
  }
  [[nodiscard]] AttentionJob job_of(AttentionRung rung, std::span<const AttentionRange> ranges) {
    AttentionJob job = inputs_of(rung).job;
    job.out = result_.out;
    job.log_sum_exp = result_.log_sum_exp;
    job.p_amax = result_.p_amax;
    job.ranges = ranges.empty() ? nullptr : ranges.data();
    job.range_count = static_cast<std::int64_t>(ranges.size());
    return job;
  }

  void run_rungs() {
    std::map<AttentionRung, std::vector<AttentionRange>> by_rung;
    for (const AttentionChoice& choice : choices_) by_rung[choice.rung].push_back(choice.rows);
    // Without ranges, the decode kernels may take it.
    const bool is_one = by_rung.size() == 1 && options_.ranges.empty();
    for (const auto& [rung, ranges] : by_rung)
      run_bounded(call_, inputs_of(rung),
                  job_of(rung, is_one ? std::span<const AttentionRange>() : ranges), exec_);
  }

  const AttentionCall& call_;
  const AttentionOptions& options_;
  const AttentionResult& result_;
  const Exec& exec_;
  AttentionJob job_;
  AttentionNorms norms_;
  std::vector<AttentionChoice> choices_;
  std::map<AttentionRung, std::optional<RungInputs>> inputs_;
};

}  // namespace

void attention_certified(const AttentionCall& call, const AttentionResult& result,
                         const Exec& exec) {
  CertifiedChooser(call, result, exec).run();
}

}  // namespace octavo
