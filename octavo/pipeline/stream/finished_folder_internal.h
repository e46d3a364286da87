// Resume on a complete folder: checks that an earlier call made it from the same source and
// options, and that its files are intact; such a folder is left unchanged.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/progress.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// The provenance in its config.json; null where there is none, or the work is unfinished.
[[nodiscard]] Json finished_provenance(const std::string& folder);
// The last step of a provenance; null where it has none.
[[nodiscard]] const Json& last_step(const Json& provenance);

struct FinishedCheck {
  std::string_view op;               // operation name for messages
  std::string_view made_from;        // source_hash in the folder's provenance
  std::function<Json()> provenance;  // the expected provenance
  int threads = 0;
  OnProgress on_progress{};
};
// Reads the source, unless shards of it were deleted, and the folder's files entirely, checks them
// against source_hash and the stored checksums, and compares other files, index and config.json
// with what would be written. Throws Error(io) that names the file that differs. Missing non-weight
// files are rewritten, and their names returned.
[[nodiscard]] std::vector<std::string> check_finished(const CheckpointReader& source,
                                                      const QuantizePlan& plan,
                                                      const Json& provenance,
                                                      const std::string& folder,
                                                      const FinishedCheck& check);
// Throws: the folder was made with other options, or by another version.
[[noreturn]] void fail_finished_otherwise(std::string_view op, const std::string& folder);
// "'out' was complete ...", for a result's notes.
[[nodiscard]] std::string finished_note(const std::string& folder,
                                        const std::vector<std::string>& written_again);

}  // namespace octavo
