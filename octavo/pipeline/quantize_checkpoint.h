// quantize_checkpoint: quantizes a checkpoint of any size in bounded memory, into shards that
// servers load.
//   const CheckpointReport report = quantize_checkpoint("model/", "out/", {.plan = {.recipe =
//   "mxfp8"}});
// Output files appear one by one, each atomically; the index and config.json come last, so that a
// folder with a config.json is complete. After a kill the same call with resume = true gives the
// same bytes.
#pragma once

#include <string>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/pipeline/plan/quantize_options.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {

// `source` is a folder or a file, `out` a folder (or a file where source is one) that does not
// exist, is empty, or is an earlier call's (with resume). Never the source itself. With resume, a
// folder that such a call has finished is left unchanged, and the report says so (was_complete): it
// has sizes and no metrics. With options.shared it is one of several processes: `source` may be
// empty, and is then where the plan says.
[[nodiscard]] OCTAVO_API CheckpointReport
quantize_checkpoint(const std::string& source, const std::string& out,
                    const QuantizeCheckpointOptions& options = {});

// The folder in an output folder with headers of the source's shards that were deleted (option
// delete_source), for what opens such a source again.
[[nodiscard]] inline std::string deleted_shards_of(const std::string& out) {
  return out.empty() ? out : out + "/" + std::string(kDeletedShards);
}

}  // namespace octavo
