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
             " whatever its rows look at: cheaper ones are not likely to be for most rows of "
             "this head, and none was looked at");
  if (facts.is_lost)
    explanation +=
        text("; rounding the output to ", dtype_name(facts.out), " may be off by ", facts.rounding,
             " more than rtol allows, which is not within ", tolerance, ": take float32");
  if (facts.is_decode)
    explanation += text("; too few rows to look at any: n_eff is taken to be 2",
                        choice.rung == AttentionRung::bf16 ? ", and inputs as they are" : "");
  if (facts.values_step > 1)
    explanation += text("; the size of V is that of one row in ", facts.values_step,
                        facts.knows_values ? "" : ", all zeros: it is not known");
  return explanation;
}

std::string explanation_for_large_scores(double tolerance, double score) {
  return text("none is within ", tolerance, ": there are scores of ", score,
              ", of which float32 has too little of the fraction; 'exact' has it");
}

}  // namespace octavo
