// Streams a checkpoint: row blocks go from the source through a few windows into the output files,
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

// The result of an action after its last row block.
struct ActionResult {
  TensorError error;
  NonFiniteFound found;       // NaN and Inf, clamped
  std::uint64_t content = 0;  // hash of its source, see content_hash
};

// One file of a plan whose others other processes may write.
struct FileShare {
  std::size_t file = 0;  // index into QuantizePlan::files
  // For each group its amax, or NaN where all its members are in this file.
  const std::vector<float>* group_amaxes = nullptr;
  // Asked before the file gets its name: has no other process taken it over?
  std::function<bool()> is_still_mine{};
};

class SourceDeletion;

// The destination: a folder with a progress record, or one file of a given name, or neither: then
// what is quantized is measured, and nothing is written.
struct Destination {
  ShardFolder* folder = nullptr;
  std::string file;
  std::string source{};              // source_identity at opening; empty: the current one
  const FileShare* share = nullptr;  // of the folder's files one alone
  SourceDeletion* deletion = nullptr;
  [[nodiscard]] bool is_nowhere() const { return folder == nullptr && file.empty(); }
};

// Writes all unfinished files, each atomically. Throws what reading, quantizing and writing throw;
// files finished by then stay.
[[nodiscard]] std::vector<ActionResult> stream_checkpoint(const CheckpointReader& source,
                                                          const QuantizePlan& plan,
                                                          const QuantizeCheckpointOptions& options,
                                                          const Destination& destination);

// The whole job for a folder: creates or resumes it, fills it, and writes the other files, index
// and config. After an error what a resume can use stays, the rest is removed.
// `shards_left`: of the source, where they were to be deleted and could not be.
// MakeProvenance: provenance_internal.h; `sample` is source_sample().
using MakeProvenance =
    std::function<Json(const std::vector<ActionResult>&, const std::string& sample)>;
[[nodiscard]] std::vector<ActionResult> stream_into_folder(
    const CheckpointReader& source, const QuantizePlan& plan,
    const QuantizeCheckpointOptions& options, const WorkIdentity& identity, const std::string& out,
    const MakeProvenance& provenance, std::vector<std::string>* shards_left = nullptr);

// A hash of the source's content, from what was read of it.
[[nodiscard]] std::string source_hash(const CheckpointReader& source, const QuantizePlan& plan,
                                      const std::vector<ActionResult>& results);

}  // namespace octavo
