// SharedRun: several processes make one output folder from one plan file (plan_file.h), on one
// machine or on many that see the same folder. Each does whole files, claims them by files of its
// own (octavo/pipeline/output/claims_internal.h), and takes over those of a process that died. The
// last one writes index and config.json. The bytes are those of one process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "octavo/base/macros.h"

namespace octavo {

struct SharedRun {
  std::string plan{};  // the plan file
  // Which process this is of how many: where it begins. Found in what a launcher says by
  // rank_of_world() (base/launcher.h).
  int rank = 0, world = 1;
  // A claim that is seen unchanged for so many seconds is taken over. Storage that is told of
  // changes late (NFS: up to a minute) needs more than that.
  double takeover_after = 120;
};

[[nodiscard]] inline std::chrono::milliseconds stale_after(const SharedRun& shared) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * shared.takeover_after));
}

// Throws Error(invalid_argument): a rank beyond its world, a time of nothing.
OCTAVO_API void check_shared_run(const SharedRun& shared);

}  // namespace octavo
