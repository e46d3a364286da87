#include "octavo/ops/attention/attention_explanation_internal.h"

#include "octavo/base/error.h"

namespace octavo {

std::string explanation_for(const AttentionChoice& choice, const ChoiceFacts& facts) {
  const double tolerance = choice.tolerance;
  std::string explanation =
      choice.predicted <= tolerance
          ? text("the cheapest within ", tolerance,
                 facts.tried.empty() ? "" : "; above it: ", facts.tried)
          : text("none is within ", tolerance, ": ", facts.tried, "; this is the most exact one");
  if (facts.is_unsampled)
    explanation =
        text("the cheapest within ", tolerance,
             " whatever the weights of its rows: cheaper ones are unlikely to be for most rows of "
             "this head, and no row was sampled");
  if (facts.is_lost)
    explanation +=
        text("; rounding the output to ", dtype_name(facts.out), " may be off by ", facts.rounding,
             " more than rtol allows, which is not within ", tolerance, ": take float32");
  if (facts.is_decode)
    explanation += text("; decode attention, no row was sampled: n_eff is assumed to be 2",
                        choice.rung != AttentionRung::f32 ? ", and inputs as they are" : "");
  if (facts.values_step > 1)
    explanation += text("; the statistics of V are of one row in ", facts.values_step,
                        facts.knows_values ? "" : ", all zeros: its size is unknown");
  return explanation;
}

std::string explanation_for_large_scores(double tolerance, double score) {
  return text("none is within ", tolerance, ": there are scores of ", score,
              ", too large for the fraction bits of float32; use 'exact'");
}

}  // namespace octavo
