// A sweep: every combination of some options, each measured, nothing written.
//   const SweepResult seen = sweep_checkpoint("model/", {parse_sweep("recipe=fp8-1x128,mxfp8"),
//                                                        parse_sweep("tile=16,32,64,128")});
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/quantize_options.h"
#include "octavo/report/sweep_result.h"
#include "octavo/tensor/view.h"

namespace octavo {

// "tile=16,32,64". Throws Error(invalid_argument) for an option that cannot be swept, and where a
// value is empty or comes twice.
[[nodiscard]] OCTAVO_API SweepAxis parse_sweep(std::string_view text);
// The options that can: recipe, format, tile, scale, scale-rule, scale-policy, arith.
[[nodiscard]] OCTAVO_API std::vector<std::string> sweep_options();

// More points than this are refused.
inline constexpr std::size_t kMaxSweepPoints = 256;

// Of a checkpoint: `options` as quantize_checkpoint has them, with options of plan replaced by
// those of each point. A point that the target cannot hold says why; where that is so of all, the
// first reason is thrown. `seconds` are those of reading, quantizing and measuring, of one run.
[[nodiscard]] OCTAVO_API SweepResult
sweep_checkpoint(const std::string& source, const std::vector<SweepAxis>& axes,
                 const QuantizeCheckpointOptions& options = {});

// Of an array on the CPU. `base` has the options that are not swept; a recipe is among one or the
// other. `seconds` are the least of five runs of quantize alone.
[[nodiscard]] OCTAVO_API SweepResult sweep_array(const View& values,
                                                 const std::vector<SweepAxis>& axes,
                                                 const QuantizePlanOptions& base = {},
                                                 int threads = 0);

}  // namespace octavo
