// A folder that an earlier call has finished, and whether a later one would make the same: asked
// for with `resume`, which leaves such a folder as it is.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/progress.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// What its config.json says octavo did; null where there is none, or unfinished work.
[[nodiscard]] Json finished_provenance(const std::string& folder);
// The last step of those words; null where they have none.
[[nodiscard]] const Json& last_step(const Json& provenance);

struct FinishedCheck {
  std::string_view op;               // whose messages these are
  std::string_view made_from;        // the source_hash of the work that made it
  std::function<Json()> provenance;  // what config.json is to say octavo did
  int threads = 0;
  OnProgress on_progress{};
};
// Reads the source and the folder's files, all of both, and holds them against the source_hash and
// the sums that were kept, and other files, index and config.json against what would be written.
// Throws Error(io) that says which of them is another. Of those that are no weights, the missing
// ones are written again, and their names returned.
[[nodiscard]] std::vector<std::string> check_finished(const CheckpointReader& source,
                                                      const QuantizePlan& plan,
                                                      const Json& provenance,
                                                      const std::string& folder,
                                                      const FinishedCheck& check);
// Made with other options, or by another version.
[[noreturn]] void fail_finished_otherwise(std::string_view op, const std::string& folder);
// "'out' was complete ...", for a result's notes.
[[nodiscard]] std::string finished_note(const std::string& folder,
                                        const std::vector<std::string>& written_again);

}  // namespace octavo
