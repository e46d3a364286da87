// Resume on a complete folder: checks that an earlier call made it from the same source and
// options, and that its files are intact; such a folder is left unchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/progress.h"
#include "octavo/pipeline/output/complete_folder_internal.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// The last step of a provenance; null where it has none.
[[nodiscard]] const Json& last_step(const Json& provenance);

// What a folder's provenance says of its source.
struct MadeFrom {
  std::string hash{};    // source_hash: of all values
  std::string sample{};  // source_sample(): of headers and some values
};

// How much is read to see that a complete folder is what it was.
enum class FinishedDepth : std::uint8_t {
  every_byte,  // the source and all files; with the folder's lock
  headers,     // headers, a sample of the source, and what is no weights: for several processes
};

struct FinishedCheck {
  std::string_view op;  // operation name for messages
  MadeFrom made_from;
  std::function<Json()> provenance;  // the expected provenance
  FinishedDepth depth = FinishedDepth::every_byte;
  int threads = 0;
  OnProgress on_progress{};
};
// Checks that the folder was made from this source and has all its files: at `every_byte` both are
// read entirely (the source unless shards of it were deleted) and checked against source_hash and
// the stored checksums. Other files, index and config.json are compared with what would be written.
// Throws Error(io) that names the file that differs. Missing files besides weights are written
// again, and their names returned.
[[nodiscard]] std::vector<std::string> check_finished(const CheckpointReader& source,
                                                      const QuantizePlan& plan,
                                                      const Json& provenance,
                                                      const std::string& folder,
                                                      const FinishedCheck& check);
// Throws Error(io) where a hash or sample of the source then and now differ.
void check_made_from(std::string_view op, const CheckpointReader& source, const std::string& folder,
                     std::string_view then, std::string_view now);
// Throws: the folder was made with other options, or by another version.
[[noreturn]] void fail_finished_otherwise(std::string_view op, const std::string& folder);
// "'out' was complete ...", for a result's notes.
[[nodiscard]] std::string finished_note(const std::string& folder, FinishedDepth depth,
                                        const std::vector<std::string>& written_again);

}  // namespace octavo
