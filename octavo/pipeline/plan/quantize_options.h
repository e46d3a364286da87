// How quantize_checkpoint works: what becomes of tensors, threads, memory, resuming, progress.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/base/progress.h"
#include "octavo/pipeline/plan/made_codes.h"
#include "octavo/pipeline/plan/plan.h"
#include "octavo/pipeline/plan/shared_run.h"

namespace octavo {

struct QuantizeCheckpointOptions {
  QuantizePlanOptions plan{};
  int threads = 0;                          // 0: all cores; bytes do not depend on it
  std::uint64_t max_memory = 256ULL << 20;  // for windows; at least 16 MiB
  bool resume = false;                      // continue an earlier call's work
  bool measure = true;                      // compute error metrics for the report
  bool follow_links = false;                // links out of the source's folder, too
  OnProgress on_progress{};
  // Delete each shard of the source when all that is made of it is finished and was read back. Not
  // of one of several processes, nor of one file.
  bool delete_source = false;
  // One of several processes with the same plan file, in which `plan` is then.
  std::optional<SharedRun> shared{};
  const MadeCodes* codes = nullptr;  // of the weights that it has; others are rounded
  const RowBlockWatch* watch = nullptr;
  bool every_row_block = false;  // call on_progress after every row block, not a few times a second
};

}  // namespace octavo
