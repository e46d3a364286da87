// How far two checkpoints are apart, tensor by tensor: a model and what became of it, two
// quantizations of one model, a file before and after a conversion. Either may be quantized, in any
// spelling octavo reads.
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

// Errors are those of `b` against `a`. A stack of experts is measured matrix by matrix where the
// other side has them taken apart. Tensors that only one of them has, or whose shapes differ, are
// in the notes and not measured (not_compared, which misses every limit, but for static scales); so
// are those that hold no numbers octavo knows. Throws Error when
// they have nothing in common. Of more than kMaxHistograms tensors only the worst have histograms.
[[nodiscard]] OCTAVO_API CheckpointReport compare_checkpoints(const std::string& a,
                                                              const std::string& b,
                                                              const CompareOptions& options = {});

}  // namespace octavo
