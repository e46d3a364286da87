#include "octavo/pipeline/stream/source_deletion_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/temporary_name_internal.h"
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

[[noreturn]] void fail_loaders(std::string_view why) {
  fail(ErrorCode::unsupported, kOp, "no loader would load what this makes (", shown(why, 200),
       "), so that the source is not deleted; leave option delete_source out, or choose another "
       "recipe or target");
}

// What is wrong with the model itself is wrong with what is made of it: layers that are missing, a
// config.json that does not fit, NaN in a norm.
std::vector<Finding> carried_over(const CheckpointReader& source) {
  static const std::set<std::string_view> kCarried{"config", "weights", "layers", "architecture",
                                                   "shapes", "values",  "index"};
  std::vector<Finding> out;
  for (Finding& one : verify(source, {.loaders = planned_loaders(), .codes = false}))
    if (one.severity == Severity::error && kCarried.contains(one.rule))
      out.push_back(std::move(one));
  return out;
}

// Of a model whose shards went already the first call looked.
void check_loaders(const CheckpointReader& source, const QuantizePlan& plan, bool looked) {
  if (plan.options.target == Dialect::octavo) return;
  if (plan.options.target == Dialect::comfyui) {
    if (plan.files.size() > 1)
      fail_loaders(text("ComfyUI loads one file, and these are ", plan.files.size()));
    return;
  }
  QuantizedModel model = plan.model;
  if (model.weights.empty()) model.weights = planned_weights(plan);
  std::vector<Finding> findings = looked ? std::vector<Finding>() : carried_over(source);
  std::ranges::move(verify_planned(source, plan.options.target, model),
                    std::back_inserter(findings));
  const Verdict verdict = verdict_of(planned_loaders(), findings);
  if (verdict.loads.empty())
    fail_loaders(verdict.fails.empty() ? std::string_view() : verdict.fails.front()->message);
}

// An output in the model's folder goes with it.
void check_place(const CheckpointReader& source, const std::string& out) {
  std::error_code ignored;
  std::filesystem::path model = std::filesystem::weakly_canonical(source.path(), ignored);
  if (!std::filesystem::is_directory(model, ignored)) model = model.parent_path();
  const std::filesystem::path relative =
      std::filesystem::weakly_canonical(out, ignored).lexically_relative(model);
  check(relative.empty() || *relative.begin() == "..", ErrorCode::invalid_argument, kOp, "'",
        shown(out, 200),
        "' lies in the model's folder, whose files are deleted; give a folder "
        "outside of it, or leave option delete_source out");
}

// Is it so, now that all is written? For what no header tells.
bool would_load(const std::string& out, Dialect target) {
  if (target == Dialect::octavo) return true;
  VerifyOptions options{.every_byte = false};
  if (target == Dialect::comfyui) options.loaders = {Loader::comfyui};
  return verify_all(CheckpointReader(out), options).good();
}

void check_shard(const std::string& path, const std::string& kept) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 && stat_shard(path, kept, status)) return;  // is deleted
  const std::string folder = std::filesystem::path(path).parent_path().string();
  struct stat in {};
  // Where everybody may write, only owners may delete (/tmp).
  const bool sticky = stat(folder.empty() ? "." : folder.c_str(), &in) == 0 &&
                      (in.st_mode & S_ISVTX) != 0 && geteuid() != 0 && in.st_uid != geteuid() &&
                      status.st_uid != geteuid();
  const char* const why = !S_ISREG(status.st_mode) ? "it is a link"
                          : status.st_nlink > 1    ? "it has another name (a hard link)"
                          : sticky || access(folder.empty() ? "." : folder.c_str(), W_OK) != 0 ||
                                  access(path.c_str(), W_OK) != 0
                              ? "this process may not delete it"
                              : nullptr;
  if (why != nullptr)
    fail_on_file(EPERM, path, kOp, "'", shown(path, 200), "' cannot be deleted: ", why,
                 "; leave option delete_source out");
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

[[noreturn]] void fail_written(const std::string& path, std::string_view what) {
  fail_on_file(EBUSY, path, kOp, "'", shown(path, 200), "' ", what,
               " since it was read back; nothing more of the source is deleted; with option resume "
               "the same call goes on");
}

// Unlinked first: a shard that is cut short would not be seen as deleted. Then cut, as this process
// and its file system keep an open file's data; but only where no name is left, which a link that
// was made a moment ago is.
bool delete_file(const std::string& path, const struct stat& expected) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0 || !is_same(status, expected) ||
      unlink(path.c_str()) != 0)
    return false;
  if (fstat(file.number(), &status) == 0 && status.st_nlink == 0)
    (void)!ftruncate(file.number(), 0);
  return true;
}

}  // namespace

SourceDeletion::SourceDeletion(const CheckpointReader& source, const QuantizePlan& plan,
                               std::string out)
    : source_(source),
      out_(std::move(out)),
      needed_for_(needed_for(source, plan)),
      opened_(source.files().size()),
      deleted_(source.files().size(), false),
      finished_(plan.files.size()) {
  check(!source.is_gguf(), ErrorCode::unsupported, kOp,
        "option delete_source is for safetensors files; leave it out for GGUF");
  check_place(source, out_);
  for (std::size_t shard = 0; shard < source.files().size(); ++shard) {
    const std::string& path = source.files()[shard].path();
    check_shard(path, source.deleted_shards());
    deleted_[shard] = lstat(path.c_str(), &opened_[shard]) != 0;
  }
  check_loaders(source, plan, has_deleted());
}

void SourceDeletion::file_is_finished(std::size_t file, const std::string& path,
                                      const std::string& state, const std::string& sum) {
  if (!has_checksum(path, sum) || content_state(path) != state)
    fail_on_file(EIO, path, kOp, "'", shown(path, 200),
                 "' is not what was written to it when it is read back: the storage may be "
                 "failing; nothing of the source is deleted for it");
  file_was_finished(file, path);
}

bool SourceDeletion::has_deleted() const {
  return std::find(deleted_.begin(), deleted_.end(), true) != deleted_.end();
}

void SourceDeletion::file_was_finished(std::size_t file, const std::string& path) {
  finished_[file].path = path;
  if (lstat(path.c_str(), &finished_[file].status) != 0) fail_written(path, "is gone");
  // The last shards wait for index and config: until then a call that goes on may need them.
  const auto is_finished = [&](const Finished& one) { return !one.path.empty(); };
  if (std::ranges::all_of(finished_, is_finished)) return;
  for (std::size_t shard = 0; shard < needed_for_.size(); ++shard) {
    const auto& files = needed_for_[shard];
    if (!deleted_[shard] && !files.empty() &&
        std::ranges::all_of(files, [&](std::size_t one) { return is_finished(finished_[one]); }))
      remove(shard);
  }
}

// Is it what this call has read, and has no second name since? What is not stays where it is: that
// is no reason to end the work.
bool SourceDeletion::may_go(std::size_t shard) const {
  struct stat now {};
  return !deleted_[shard] && lstat(source_.files()[shard].path().c_str(), &now) == 0 &&
         is_same(now, opened_[shard]) && now.st_nlink == 1;
}

void SourceDeletion::check_written(std::size_t shard) const {
  for (const std::size_t file : needed_for_[shard]) {
    const Finished& one = finished_[file];
    struct stat now {};
    if (one.path.empty() || lstat(one.path.c_str(), &now) != 0 || !is_same(now, one.status))
      fail_written(one.path, "was changed");
  }
}

void SourceDeletion::remove(std::size_t shard) {
  const safetensors::FileReader& file = source_.files()[shard];
  check_written(shard);
  if (!may_go(shard)) return;
  keep_shard_header(file, text(out_, "/", kDeletedShards));
  deleted_[shard] = delete_file(file.path(), opened_[shard]);
}

void SourceDeletion::keep_headers() {
  for (std::size_t shard = 0; shard < deleted_.size(); ++shard) {
    check_written(shard);
    if (may_go(shard)) keep_shard_header(source_.files()[shard], text(out_, "/", kDeletedShards));
  }
}

std::vector<std::string> delete_kept_shards(const CheckpointReader& source, const std::string& out,
                                            Dialect target) {
  const std::string kept = text(out, "/", kDeletedShards);
  const bool loads = would_load(out, target);
  std::vector<std::string> left;
  for (const auto& file : source.files()) {
    struct stat status {};
    if (lstat(file.path().c_str(), &status) != 0) continue;
    if (!loads || !is_kept_shard(file.path(), kept) || !S_ISREG(status.st_mode) ||
        status.st_nlink > 1 || !delete_file(file.path(), status))
      left.push_back(std::filesystem::path(file.path()).filename().string());
  }
  if (left.empty()) remove_kept_headers(out);
  return left;
}

// Under another name first: a folder with some of the headers would not be understood.
void remove_kept_headers(const std::string& out) {
  const std::string kept = text(out, "/", kDeletedShards),
                    going = text(out, "/", temporary_name(kDeletedShards));
  std::error_code ignored;
  std::filesystem::rename(kept, going, ignored);
  if (!ignored) std::filesystem::remove_all(going, ignored);
}

void check_deleted_shards(const CheckpointReader& source, const QuantizePlan& plan,
                          const std::vector<bool>& finished) {
  const auto files = needed_for(source, plan);
  for (std::size_t shard = 0; shard < files.size(); ++shard) {
    struct stat status {};
    const std::string& path = source.files()[shard].path();
    if (lstat(path.c_str(), &status) == 0) continue;
    for (const std::size_t file : files[shard])
      if (!finished[file])
        fail_on_file(EIO, plan.files[file], kOp, "'", shown(plan.files[file], 160),
                     "' of the output is not what was written, or cannot be read, and '",
                     shown(path, 200),
                     "', which it was made of, was deleted as asked (option delete_source): put "
                     "one of them back, or see that the storage gives what it has; nothing was "
                     "changed");
  }
}

}  // namespace octavo
