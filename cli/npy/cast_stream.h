// Executes a planned cast in chunks: memory is bounded for any file size.
#pragma once

#include <cstdint>

#include "cli/npy/cast_plan.h"
#include "cli/npy/npy_reader.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/round/policy.h"

namespace octavo::cli {

// Errors of the results against the input, over elements where both are finite.
struct CastError {
  double max_absolute = 0;
  double max_relative = 0;  // where the input is not zero
  double rms_relative = 0;  // sqrt(sum of squared errors / sum of squared inputs)
  double sum_error2 = 0, sum_input2 = 0;
};

struct CastResult {
  Counts counts;
  CastError error;  // only when asked for
  double seconds = 0;
};

// Reads all data, converts, writes header and data; the caller commits the file.
CastResult stream_cast(const CastPlan& plan, NpyReader& input, WholeFile& output,
                       bool measure_error);

}  // namespace octavo::cli
