// The work of one process of several on a folder (plan/shared_run.h): claims a job, does it, and
// looks for the next, until the folder is complete.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "octavo/pipeline/output/shared_folder_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"

namespace octavo {

// What this process did.
struct SharedOutcome {
  // Of all actions, where this process was the last, which writes index and config.json.
  std::optional<std::vector<ActionResult>> results{};
  std::int64_t files_written = 0, taken_over = 0;
};

// `source_now` is source_identity() when the source was opened. Throws what streaming throws; the
// jobs of this process are then free for others.
[[nodiscard]] SharedOutcome work_on_shared(const CheckpointReader& source, const QuantizePlan& plan,
                                           const QuantizeCheckpointOptions& options,
                                           const SharedIdentity& identity,
                                           const std::string& source_now, const std::string& out,
                                           const MakeProvenance& provenance);

}  // namespace octavo
