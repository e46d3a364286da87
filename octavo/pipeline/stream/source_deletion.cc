#include "octavo/pipeline/stream/source_deletion_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/checkpoint/deleted_shards_internal.h"
#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/checkpoint/verify/verify_planned_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

// A shard is needed for the files of its tensors, and for those of all that share a scale with
// them: the amax of a group is found again by a call that goes on.
std::vector<std::vector<std::size_t>> needed_for(const CheckpointReader& source,
                                                 const QuantizePlan& plan) {
  std::vector<std::set<std::size_t>> of_group(static_cast<std::size_t>(plan.groups));
  for (const TensorAction& action : plan.actions)
    if (action.group >= 0) of_group[static_cast<std::size_t>(action.group)].insert(action.file);
  std::vector<std::set<std::size_t>> of_shard(source.files().size());
  for (const TensorAction& action : plan.actions)
    for (const std::size_t shard : source.shards_of(source.tensors()[action.tensor])) {
      of_shard[shard].insert(action.file);
      if (action.group < 0) continue;
      const auto& files = of_group[static_cast<std::size_t>(action.group)];
      of_shard[shard].insert(files.begin(), files.end());
    }
  std::vector<std::vector<std::size_t>> out;
  for (const auto& files : of_shard) out.emplace_back(files.begin(), files.end());
  return out;
}

void check_loaders(const CheckpointReader& source, const QuantizePlan& plan) {
  if (plan.options.target == Dialect::octavo || plan.options.target == Dialect::comfyui) return;
  QuantizedModel model = plan.model;
  if (model.weights.empty()) model.weights = planned_weights(plan);
  const std::vector<Finding> findings = verify_planned(source, plan.options.target, model);
  if (!verdict_of(planned_loaders(), findings).loads.empty()) return;
  const std::string why = findings.empty() ? "" : findings.front().message;
  fail(ErrorCode::unsupported, kOp, "no loader would load what this makes (", shown(why, 200),
       "), so that the source is not deleted; leave option delete_source out, or choose another "
       "recipe or target");
}

void check_shard(const std::string& path, const std::string& kept) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 && stat_shard(path, kept, status)) return;  // is deleted
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const char* const why =
      !S_ISREG(status.st_mode) ? "it is a link"
      : status.st_nlink > 1    ? "it has another name (a hard link)"
      : access(folder.empty() ? "." : folder.c_str(), W_OK) != 0 || access(path.c_str(), W_OK) != 0
          ? "this process may not delete it"
          : nullptr;
  if (why != nullptr)
    fail_on_file(EPERM, path, kOp, "'", shown(path, 200), "' cannot be deleted: ", why,
                 "; leave option delete_source out");
}

}  // namespace

SourceDeletion::SourceDeletion(const CheckpointReader& source, const QuantizePlan& plan,
                               std::string out)
    : source_(source),
      out_(std::move(out)),
      needed_for_(needed_for(source, plan)),
      deleted_(source.files().size(), false),
      finished_(plan.files.size(), false) {
  check(!source.is_gguf(), ErrorCode::unsupported, kOp,
        "option delete_source is for safetensors files; leave it out for GGUF");
  check_loaders(source, plan);
  for (const auto& file : source.files()) check_shard(file.path(), source.deleted_shards());
}

void SourceDeletion::file_is_finished(std::size_t file, const std::string& path,
                                      const std::string& sum) {
  if (!has_checksum(path, sum))
    fail_on_file(EIO, path, kOp, "'", shown(path, 200),
                 "' is not what was written to it when it is read back: the storage may be "
                 "failing; nothing of the source is deleted for it");
  file_was_finished(file);
}

bool SourceDeletion::has_deleted() const {
  return std::find(deleted_.begin(), deleted_.end(), true) != deleted_.end();
}

void SourceDeletion::file_was_finished(std::size_t file) {
  finished_[file] = true;
  // The last shards wait for index and config: until then a call that goes on may need them.
  if (std::find(finished_.begin(), finished_.end(), false) == finished_.end()) return;
  for (std::size_t shard = 0; shard < needed_for_.size(); ++shard) {
    const auto& files = needed_for_[shard];
    if (!deleted_[shard] && !files.empty() &&
        std::all_of(files.begin(), files.end(), [&](std::size_t one) { return finished_[one]; }))
      remove(shard);
  }
}

// Unlinked first: a shard that is cut short would not be seen as deleted. Then cut, as this process
// and its file system keep an open file's data.
void SourceDeletion::remove(std::size_t shard) {
  const safetensors::FileReader& file = source_.files()[shard];
  deleted_[shard] = true;
  struct stat status {};
  if (lstat(file.path().c_str(), &status) != 0) return;  // by an earlier call
  keep_shard_header(file, text(out_, "/", kDeletedShards));
  const Descriptor open_file(open(file.path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (unlink(file.path().c_str()) != 0)
    fail_on_file(errno, file.path(), kOp, "could not delete '", shown(file.path(), 200),
                 "': ", std::strerror(errno));
  if (open_file.number() >= 0) (void)!ftruncate(open_file.number(), 0);
}

void SourceDeletion::folder_is_complete() {
  for (std::size_t shard = 0; shard < deleted_.size(); ++shard)
    if (!deleted_[shard]) remove(shard);
  std::error_code ignored;
  std::filesystem::remove_all(text(out_, "/", kDeletedShards), ignored);
}

}  // namespace octavo
