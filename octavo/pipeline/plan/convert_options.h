// How convert_checkpoint and dequantize_checkpoint work, and what they return.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/progress.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/pipeline/plan/shared_run.h"

namespace octavo {

struct ConvertCheckpointOptions {
  int threads = 0;                          // 0: all cores
  std::uint64_t max_memory = 256ULL << 20;  // for windows; at least 16 MiB
  bool resume = false;
  bool follow_links = false;      // links out of the source's folder, too
  bool clamp_non_finite = false;  // dequantize: clamp what the type cannot hold, else an error
  OnProgress on_progress{};
  // convert: one of several processes with the same plan file, in which source and target are then.
  std::optional<SharedRun> shared{};
};

struct ConvertCheckpointResult {
  Dialect from = Dialect::octavo;
  std::int64_t weights = 0;  // how many were converted
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double seconds = 0;
  bool was_complete = false;                 // with resume: an earlier call had finished
  std::vector<std::string> written_again{};  // then: missing non-weight files that were rewritten
  std::vector<std::string> notes;            // what the user should know
  // One of several processes with a plan: another wrote what is written last, and how many files
  // this one wrote.
  bool finished_by_another = false;
  std::int64_t files_written = 0, files_taken_over = 0;
};

}  // namespace octavo
