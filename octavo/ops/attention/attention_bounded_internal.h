// A kernel job, and bounds of the errors of its rows, where they are asked for.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "octavo/ops/attention/attention_bound_internal.h"
#include "octavo/ops/attention/attention_rungs_internal.h"

namespace octavo {

[[nodiscard]] bool wants_bounds(const AttentionOptions& options);

// run_attention, and bounds of the rows of the job into the views of the options. `inputs` are
// those that the job was made of.
void run_bounded(const AttentionCall& call, const RungInputs& inputs, AttentionJob job,
                 const Exec& exec);

// The parts of a bound that a call has once on a rung, with the worst of the kernels of whole calls
// and of those that take ranges of rows; nothing where no bound of them is derived. Reads formats
// and shapes alone: neither inputs nor quantizers.
[[nodiscard]] std::optional<BoundTerms> bound_terms(const AttentionCall& call, AttentionRung rung,
                                                    const Exec& exec);

// Throws where no bound of the kernels of the call's rung is derived, or for `auto` of those of its
// last resort; before anything is computed.
void require_bounds(const AttentionCall& call, const Exec& exec);

// The rungs that `auto` may take: where bounds are asked for, those of whose kernels one is
// derived.
class BoundedRungs {
 public:
  BoundedRungs(const AttentionCall& call, const Exec& exec);
  [[nodiscard]] bool have(AttentionRung rung) const {
    return std::ranges::find(without_, rung) == without_.end();
  }

 private:
  std::vector<AttentionRung> without_;
};

// What a bias adds to scores of a row, as far as it counts: the magnitude of the largest one that
// the row sees (keys far below it have no weight); 0 without a bias, infinite where one is NaN or
// +inf, which makes NaN of the row.
[[nodiscard]] double bias_magnitude(const AttentionJob& job, std::int64_t batch, std::int64_t head,
                                    std::int64_t row);

// Rounding of the output to a type narrower than f32, of an element of at most this magnitude once
// rounded; and of one as small as may be, where the type is subnormal.
[[nodiscard]] double output_rounding(DType out, double magnitude);
[[nodiscard]] double least_output_rounding(DType out);

}  // namespace octavo
