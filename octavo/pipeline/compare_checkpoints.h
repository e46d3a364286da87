// compare_checkpoints: error metrics between two checkpoints, tensor by tensor: a model and its
// quantization, two quantizations of one model, a checkpoint before and after a conversion. Either
// may be quantized, in any dialect that octavo reads.
//   const CheckpointReport report = compare_checkpoints("model/", "model-mxfp8/");
#pragma once

#include <cstdint>
#include <string>

#include "octavo/base/macros.h"
#include "octavo/base/progress.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {

struct CompareOptions {
  int threads = 0;  // 0: all cores; results do not depend on it
  OnProgress on_progress{};
};

// Errors are those of `b` against `a`. An expert stack is measured matrix by matrix where the other
// side has it split. Tensors that only one side has, or whose shapes differ, are noted and not
// measured (not_compared, which misses every limit, except for static scales); so are tensors
// without numbers that octavo knows. Throws Error when the checkpoints have no tensor in common. Of
// more than kMaxHistograms tensors only the worst have histograms.
[[nodiscard]] OCTAVO_API CheckpointReport compare_checkpoints(const std::string& a,
                                                              const std::string& b,
                                                              const CompareOptions& options = {});

}  // namespace octavo
