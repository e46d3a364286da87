#include "octavo/pipeline/stream/shared_jobs_internal.h"

#include <algorithm>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/file/shard_groups_internal.h"

namespace octavo {
namespace {

using Kind = SharedJob::Kind;

SharedJob job_of(Kind kind, std::size_t file) {
  return {kind, file, SharedFolder::job_of(kind == Kind::amax ? "amax" : "file", file)};
}

}  // namespace

SharedJobs::SharedJobs(const QuantizePlan& plan, const std::vector<ShardWork>& work,
                       const SharedRun& shared, const SharedFolder& folder)
    : plan_(plan),
      work_(work),
      folder_(folder),
      claims_(folder.work_folder(), process_name(), stale_after(shared)),
      needs_(amax_files(plan)) {
  for (const ShardWork& one : work) bytes_total_ += one.bytes();
  order(shared);
}

// Amaxes first, which others wait for. Of both kinds this rank's own come first, then those of the
// next rank, and so on: processes that are done early do not all go to the same one.
void SharedJobs::order(const SharedRun& shared) {
  const std::vector<int> ranks = assign_ranks(work_, shared.world);
  std::vector<std::size_t> files(work_.size());
  std::iota(files.begin(), files.end(), std::size_t{0});
  const auto after = [&](std::size_t file) {
    return (ranks[file] - shared.rank + shared.world) % shared.world;
  };
  std::stable_sort(files.begin(), files.end(), [&](std::size_t a, std::size_t b) {
    return after(a) != after(b) ? after(a) < after(b) : work_[a].bytes() > work_[b].bytes();
  });
  for (const std::size_t file : files)
    if (work_[file].bytes_shared > 0) jobs_.push_back(job_of(Kind::amax, file));
  for (const std::size_t file : files) jobs_.push_back(job_of(Kind::file, file));
}

bool SharedJobs::is_ready(const SharedJob& job) const {
  return job.kind != Kind::file ||
         std::all_of(needs_[job.file].begin(), needs_[job.file].end(), [&](std::size_t file) {
           return claims_.is_done(job_of(Kind::amax, file).name);
         });
}

TakenJob SharedJobs::take_next() {
  bool all_files = true;
  for (const bool claimed : {false, true})
    for (const SharedJob& job : jobs_) {
      if (claims_.is_done(job.name)) continue;
      all_files = all_files && job.kind == Kind::amax;
      if (claims_.is_claimed(job.name) != claimed || !is_ready(job)) continue;
      if (TakenJob taken = take(job); taken.claim != nullptr) return taken;
    }
  return all_files ? take({Kind::finish, 0, "finish"}) : TakenJob{};
}

// It may have been finished between the look and the claim.
TakenJob SharedJobs::take(const SharedJob& job) {
  std::unique_ptr<Claim> claim = claims_.take(job.name);
  if (claim == nullptr || is_done(job)) return {};
  return {job, std::move(claim)};
}

bool SharedJobs::is_done(const SharedJob& job) const {
  return folder_.has_done(job.name) || folder_.is_complete();
}

std::uint64_t SharedJobs::bytes_of(const SharedJob& job) const {
  const ShardWork& work = work_[job.file];
  return job.kind == Kind::amax ? work.bytes_shared : work.bytes();
}

std::uint64_t SharedJobs::bytes_done() const {
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < work_.size(); ++i) {
    if (claims_.is_done(job_of(Kind::file, i).name))
      done += work_[i].bytes();
    else if (claims_.is_done(job_of(Kind::amax, i).name))
      done += work_[i].bytes_shared;
  }
  return done;
}

std::string SharedJobs::waiting_for() {
  for (const SharedJob& job : jobs_) {
    if (claims_.is_done(job.name)) continue;
    const std::string owner = claims_.observe(job.name);
    if (!owner.empty())
      return text("waiting for ", plan_.files[job.file], " (", shown(owner, 60), ")");
  }
  return "waiting for the last files";
}

}  // namespace octavo
