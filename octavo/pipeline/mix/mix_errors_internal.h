// The measured sensitivity of units: how far their results are off under each recipe.
#pragma once

#include "octavo/pipeline/mix/mix_units_internal.h"
#include "octavo/pipeline/plan/quantize_options.h"

namespace octavo::mix {

// Reads the model once for each recipe and fills in the errors of all choices. The error of a
// matrix is the sum of squared differences over the sum of squared values; with statistics of
// inputs (options.plan.statistics) each column's squares are weighted by E[x^2] of its input, which
// is the squared error of the results over their energy where inputs do not correlate. That of a
// unit is the sum over its matrices; of the experts of a layer, which see a part of the tokens
// each, the mean, weighted by their tokens where these are known. Bits do not depend on threads.
void measure_units(const CheckpointReader& source, const QuantizeCheckpointOptions& options,
                   Units& units);

// Matrices that an error of one stands for, over all units: expert matrices of a layer are one.
[[nodiscard]] std::int64_t matrices_of(const Units& units);

}  // namespace octavo::mix
