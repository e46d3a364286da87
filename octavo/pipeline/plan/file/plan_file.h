// The plan file (plan.json): what becomes of every tensor of a checkpoint, which scales are shared,
// which bytes of the source are read, into which files, and a fingerprint of the source's headers.
// Several processes that are given the same one divide its files (octavo/pipeline/shared_run.h).
//   write_plan_file(source, plan, {}, out);        octavo plan MODEL -o plan.json
//   PlanFile file = read_plan_file("plan.json");   octavo quantize --plan plan.json
// A process plans again by the options in the file, and refuses one that says anything else: so a
// file that was changed, or is of another source or version, does not decide what is read or
// written.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/file/shard_work.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

inline constexpr std::string_view kPlanOfQuantize = "quantize", kPlanOfConvert = "convert";

// What a process needs of it; the rest is for people and programs that read JSON.
struct PlanFile {
  std::string version;  // of octavo
  std::string work;     // kPlanOfQuantize or kPlanOfConvert
  std::string model;    // the source when it was planned: an absolute path
  std::string source;   // fingerprint of its headers
  bool follow_links = false;
  std::vector<std::string> notes{};  // for people: some are of what else lay in the model's folder
  QuantizePlanOptions options{};     // of a conversion the target alone
  std::vector<ShardWork> shards{};
};

struct PlanOfWork {
  std::string_view work = kPlanOfQuantize;
  std::string model{};  // empty: where the source is
  bool follow_links = false;
  const std::vector<std::string>* notes = nullptr;  // others than the plan's
};

// The document, a piece at a time: it has a line for every tensor.
using PutPiece = std::function<void(std::string_view)>;
OCTAVO_API void write_plan_file(const CheckpointReader& source, const QuantizePlan& plan,
                                const PlanOfWork& of, const PutPiece& put);

// `name` is for messages. The text is untrusted: Error(invalid_argument) that says where it is no
// plan, or that another version wrote it.
[[nodiscard]] OCTAVO_API PlanFile parse_plan_file(std::string_view text, std::string_view name);
// Throws Error(io), too.
[[nodiscard]] OCTAVO_API PlanFile read_plan_file(const std::string& path);
// Does a file begin as plans do, of whatever version and however damaged? Such a file may be
// replaced by another plan.
[[nodiscard]] OCTAVO_API bool is_plan_file(const std::string& path);

// Throws Error(invalid_argument) where another version of octavo wrote the plan, or it is of
// another source: before planning.
OCTAVO_API void check_plan_source(const PlanFile& file, std::string_view name,
                                  const CheckpointReader& source);
// Throws Error(invalid_argument) where the file at `path` is not what octavo plans for this source:
// it was changed. Returns a hash of it, the same wherever plan and source lie.
[[nodiscard]] OCTAVO_API std::string check_plan_file(const std::string& path, const PlanFile& file,
                                                     const CheckpointReader& source,
                                                     const QuantizePlan& plan);

}  // namespace octavo
