#include "octavo/pipeline/plan/shared_run.h"

#include "octavo/base/error.h"
#include "octavo/base/launcher.h"

namespace octavo {

void check_shared_run(const SharedRun& shared) {
  constexpr std::string_view kOp = "quantize";
  constexpr double kLeast = 0.01, kMost = 86400;
  check(shared.world >= 1 && shared.world <= kMaxWorld, ErrorCode::invalid_argument, kOp,
        "got a world of ", shared.world, "; expected 1 to ", kMaxWorld);
  check(shared.rank >= 0 && shared.rank < shared.world, ErrorCode::invalid_argument, kOp,
        "got rank ", shared.rank, " in a world of ", shared.world, "; expected 0 to ",
        shared.world - 1);
  check(shared.takeover_after >= kLeast && shared.takeover_after <= kMost,
        ErrorCode::invalid_argument, kOp, "got takeover_after = ", shared.takeover_after,
        " seconds; expected ", kLeast, " to ", kMost);
}

}  // namespace octavo
