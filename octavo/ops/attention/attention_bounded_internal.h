// A kernel job, and bounds of the errors of its rows, where they are asked for.
#pragma once

#include "octavo/ops/attention/attention_bound_internal.h"
#include "octavo/ops/attention/attention_rungs_internal.h"

namespace octavo {

[[nodiscard]] bool wants_bounds(const AttentionOptions& options);

// run_attention, and bounds of the rows of the job into the views of the options. `inputs` are
// those that the job was made of.
void run_bounded(const AttentionCall& call, const RungInputs& inputs, AttentionJob job,
                 const Exec& exec);

// The parts of a bound that a call has once, for the kernels that take this job; throws where no
// bound of them is derived.
[[nodiscard]] BoundTerms bound_terms(const AttentionCall& call, const AttentionJob& job,
                                     const Exec& exec);

// What a bias adds to scores of a row, as far as it counts: the magnitude of the largest one that
// the row sees (keys far below it have no weight); 0 without a bias.
[[nodiscard]] double bias_magnitude(const AttentionJob& job, std::int64_t batch, std::int64_t head,
                                    std::int64_t row);

// Rounding of the output to a type narrower than f32, of an element of at most this magnitude once
// rounded.
[[nodiscard]] double output_rounding(DType out, double magnitude);

}  // namespace octavo
