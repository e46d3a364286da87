// The work itself: bands of rows go from the source through a few windows into the output's files,
// on several threads, and are measured on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/quantize_options.h"
#include "octavo/pipeline/plan/row_blocks_internal.h"
#include "octavo/pipeline/stream/window_internal.h"
#include "octavo/report/row_block_error.h"

namespace octavo {

// What is known of an action when its bands are done.
struct ActionResult {
  TensorError error;
  NonFiniteFound found;       // and clamped
  std::uint64_t content = 0;  // sum over its source, see content_hash
};

// Where files go: a folder with a record, or one file of a given name.
struct Destination {
  OutputFolder* folder = nullptr;
  std::string file;
  std::string source{};  // source_identity when it was opened; empty: what it is now
};

// Writes all files that are not finished already, each whole. Throws what reading, quantizing and
// writing throw; files that are finished by then stay.
[[nodiscard]] std::vector<ActionResult> stream_checkpoint(const CheckpointReader& source,
                                                          const QuantizePlan& plan,
                                                          const QuantizeCheckpointOptions& options,
                                                          const Destination& destination);

// The whole of it, for a folder: made or taken up, filled, and finished with the other files, index
// and config. After an error what a later call can go on with stays, the rest goes.
using MakeProvenance =
    std::function<Json(const std::vector<ActionResult>&)>;  // provenance_internal.h
[[nodiscard]] std::vector<ActionResult> stream_into_folder(const CheckpointReader& source,
                                                           const QuantizePlan& plan,
                                                           const QuantizeCheckpointOptions& options,
                                                           const WorkIdentity& identity,
                                                           const std::string& out,
                                                           const MakeProvenance& provenance);

// A number for the source's content, from what was read of it.
[[nodiscard]] std::string source_hash(const CheckpointReader& source, const QuantizePlan& plan,
                                      const std::vector<ActionResult>& results);

}  // namespace octavo
