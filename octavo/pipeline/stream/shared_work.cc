#include "octavo/pipeline/plan/file/shard_groups_internal.h"
#include "octavo/pipeline/stream/shared_work_internal.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <thread>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/pipeline/output/folder_files_internal.h"
#include "octavo/pipeline/plan/file/shard_work.h"
#include "octavo/pipeline/stream/amaxes_internal.h"
#include "octavo/pipeline/stream/stream_files_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize", kFinish = "finish";
using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kFirstWait{10}, kLongestWait{1000};

class SharedWork {
 public:
  SharedWork(const CheckpointReader& source, const QuantizePlan& plan,
             const QuantizeCheckpointOptions& options, const std::string& source_now,
             SharedFolder& folder, const MakeProvenance& provenance)
      : source_(source),
        plan_(plan),
        options_(options),
        source_now_(source_now),
        folder_(folder),
        provenance_(provenance),
        takeover_after_(static_cast<std::int64_t>(1000 * options.shared->takeover_after)),
        claims_(folder.work_folder(), process_name(), takeover_after_),
        work_(shard_work(source, plan)),
        needs_(amax_files(plan)),
        across_(groups_across_files(plan)) {
    for (const ShardWork& work : work_) bytes_total_ += work.bytes();
    order_jobs();
  }

  SharedOutcome run() {
    Milliseconds wait = kFirstWait;
    while (!folder_.is_complete()) {
      if (!claims_.look()) {
        if (folder_.is_complete()) break;
        folder_.fail_vanished();
      }
      std::unique_ptr<Claim> claim;
      try {
        claim = take_next();
      } catch (const Error&) {  // the last process may have cleared the work folder
        if (!folder_.is_complete()) throw;
        break;
      }
      if (claim != nullptr) {
        do_job(*claim);
        wait = kFirstWait;
        continue;
      }
      tell(0, waiting_for());
      std::this_thread::sleep_for(std::min(wait, takeover_after_ / 4));
      wait = std::min(wait + wait / 4, kLongestWait);  // late by a quarter of the time at most
    }
    folder_.remove_work();  // what one that came last left, or made anew
    outcome_.taken_over = claims_.taken_over();
    const std::chrono::duration<double> seconds = Claims::Clock::now() - start_;
    if (options_.on_progress)
      (void)options_.on_progress({.bytes_done = bytes_total_,
                                  .bytes_total = bytes_total_,
                                  .seconds = seconds.count(),
                                  .current = ""});
    return std::move(outcome_);
  }

 private:
  struct Job {
    std::string name;
    bool is_amax = false;
    std::size_t file = 0;
  };

  // Amaxes first, which others wait for. Of both kinds this rank's own come first, then those of
  // the next rank, and so on: processes that are done early do not all go to the same one.
  void order_jobs() {
    const int rank = options_.shared->rank, world = options_.shared->world;
    const std::vector<int> ranks = assign_ranks(work_, world);
    std::vector<std::size_t> files(work_.size());
    for (std::size_t i = 0; i < files.size(); ++i) files[i] = i;
    const auto after = [&](std::size_t file) { return (ranks[file] - rank + world) % world; };
    std::stable_sort(files.begin(), files.end(), [&](std::size_t a, std::size_t b) {
      return after(a) != after(b) ? after(a) < after(b) : work_[a].bytes() > work_[b].bytes();
    });
    for (const std::size_t file : files)
      if (work_[file].bytes_shared > 0)
        jobs_.push_back({SharedFolder::job_of("amax", file), true, file});
    for (const std::size_t file : files)
      jobs_.push_back({SharedFolder::job_of("file", file), false, file});
  }

  [[nodiscard]] bool is_ready(const Job& job) const {
    return job.is_amax ||
           std::all_of(needs_[job.file].begin(), needs_[job.file].end(), [&](std::size_t file) {
             return claims_.is_done(SharedFolder::job_of("amax", file));
           });
  }

  // Jobs that nobody has, and then those whose claims are stale.
  std::unique_ptr<Claim> take_next() {
    bool all_files = true;
    for (const bool claimed : {false, true})
      for (const Job& job : jobs_) {
        if (claims_.is_done(job.name)) continue;
        all_files = all_files && job.is_amax;
        if (claims_.is_claimed(job.name) != claimed || !is_ready(job)) continue;
        if (auto claim = take(job.name)) {
          job_ = &job;
          if (!job.is_amax) folder_.remove_leftovers(plan_.files[job.file]);
          return claim;
        }
      }
    job_ = nullptr;
    return all_files ? take(std::string(kFinish)) : nullptr;
  }

  // It may have been finished between the look and the claim.
  std::unique_ptr<Claim> take(const std::string& name) {
    std::unique_ptr<Claim> claim = claims_.take(name);
    const bool to_do = claim != nullptr && !folder_.has_done(name) && !folder_.is_complete();
    return to_do ? std::move(claim) : nullptr;
  }

  // A process that was stopped for a while may find its job taken over, or finished: that is no
  // error, also where what it did fails.
  void do_job(Claim& claim) {
    try {
      if (job_ == nullptr) return finish(claim);
      job_->is_amax ? find_amaxes(claim, job_->file) : write_file(claim, job_->file);
    } catch (const Error&) {
      if (stopped_ || !(claim.is_lost() || folder_.has_done(claim.job()) || folder_.is_complete()))
        throw;
    }
  }

  // Progress of the whole, as far as this process knows. False: to stop.
  bool tell(std::uint64_t of_this_job, std::string_view current) {
    if (!options_.on_progress) return true;
    std::uint64_t done = of_this_job;
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (claims_.is_done(SharedFolder::job_of("file", i)))
        done += work_[i].bytes();
      else if (claims_.is_done(SharedFolder::job_of("amax", i)))
        done += work_[i].bytes_shared;
    }
    const std::chrono::duration<double> seconds = Claims::Clock::now() - start_;
    stopped_ = !options_.on_progress({.bytes_done = std::min(done, bytes_total_),
                                      .bytes_total = bytes_total_,
                                      .seconds = seconds.count(),
                                      .current = current}) ||
               stopped_;
    if (stopped_ && of_this_job == 0)
      fail(ErrorCode::unsupported, kOp,
           "stopped as asked; finished files are kept, the same call goes on");
    return !stopped_;
  }

  // Whom this process waits for, so that it can take over.
  std::string waiting_for() {
    for (const Job& job : jobs_) {
      if (claims_.is_done(job.name)) continue;
      const std::string owner = claims_.observe(job.name);
      if (!owner.empty())
        return text("waiting for ", plan_.files[job.file], " (", shown(owner, 60), ")");
    }
    return "waiting for the last files";
  }

  // The options of a job: its progress is a part of the whole, and it stops when another process
  // has it.
  [[nodiscard]] QuantizeCheckpointOptions options_of(Claim& claim, std::uint64_t bytes) {
    QuantizeCheckpointOptions options = options_;
    options.on_progress = [this, &claim, bytes](const Progress& at) {
      const double part = at.bytes_total == 0 ? 0.0
                                              : static_cast<double>(at.bytes_done) /
                                                    static_cast<double>(at.bytes_total);
      const auto done = static_cast<std::uint64_t>(part * static_cast<double>(bytes));
      claim.set_bytes_done(done);
      return tell(std::max<std::uint64_t>(1, done), at.current) && !claim.is_lost();
    };
    return options;
  }

  // The amaxes of groups that span files, of their members in this one.
  void find_amaxes(Claim& claim, std::size_t file) {
    std::vector<RowBlock> row_blocks;
    for (const RowBlock& row_block : split_row_blocks(source_, plan_, file)) {
      const TensorAction& action = plan_.actions[row_block.action];
      if (needs_amax(action) && is_across(action.group)) row_blocks.push_back(row_block);
    }
    const QuantizeCheckpointOptions options = options_of(claim, work_[file].bytes_shared);
    const int threads = threads_within_memory(source_, plan_, options, row_blocks);
    std::vector<Window> windows(static_cast<std::size_t>(threads));
    Amaxes amaxes(source_, plan_);
    WorkLoop loop(threads, work_[file].bytes_shared, options.on_progress, options.every_row_block);
    loop.run(row_blocks.size(), [&](int thread, std::size_t i) {
      const TensorAction& action = plan_.actions[row_blocks[i].action];
      amaxes.look_at(windows[static_cast<std::size_t>(thread)], row_blocks[i]);
      loop.advance(
          static_cast<std::uint64_t>(row_blocks[i].rows * row_layout(source_, action).row_bytes),
          source_.tensors()[action.tensor].name());
    });
    check_source();
    const std::vector<float> groups = amaxes.of_groups();
    Json found = Json::array();
    std::vector<bool> said(groups.size(), false);
    for (const RowBlock& row_block : row_blocks) {
      const auto group = static_cast<std::size_t>(plan_.actions[row_block.action].group);
      if (said[group]) continue;
      said[group] = true;
      found.push(Json::array({group, __builtin_bit_cast(std::uint32_t, groups[group])}));
    }
    folder_.note_done(claim.job(), Json::object({{"amaxes", std::move(found)}}));
  }

  [[nodiscard]] bool is_across(int group) const {
    return group >= 0 && across_[static_cast<std::size_t>(group)];
  }

  // Of every group that the file has members of: NaN where it has all of them.
  std::vector<float> group_amaxes(std::size_t file) {
    std::vector<float> out(across_.size(), std::numeric_limits<float>::quiet_NaN());
    for (const std::size_t other : needs_[file]) {
      if (!amaxes_.contains(other)) {
        const std::string job = SharedFolder::job_of("amax", other);
        const Json record = folder_.done(job);
        check(record["amaxes"].is_array(), ErrorCode::io, kOp, "the record ", job, " in '",
              shown(folder_.work_folder(), 200), "' cannot be read; remove the folder '",
              shown(folder_.path(), 200), "' and start again");
        for (const Json& one : record["amaxes"].elements()) {
          const std::vector<Json>& pair = one.elements();
          if (pair.size() != 2) continue;
          const std::int64_t group = pair[0].integer_or(-1);
          const auto bits = static_cast<std::uint32_t>(pair[1].integer_or(0));
          if (group >= 0 && group < static_cast<std::int64_t>(out.size()))
            amaxes_[other].emplace_back(static_cast<std::size_t>(group),
                                        __builtin_bit_cast(float, bits));
        }
      }
      for (const auto& [group, amax] : amaxes_[other])
        out[group] = std::isnan(out[group]) ? amax : std::max(out[group], amax);
    }
    return out;
  }

  void write_file(Claim& claim, std::size_t file) {
    const std::vector<float> amaxes = group_amaxes(file);
    const FileShare share{.file = file, .group_amaxes = &amaxes};
    (void)stream_checkpoint(
        source_, plan_, options_of(claim, work_[file].bytes_read + work_[file].bytes_written),
        {.folder = &folder_, .file = {}, .source = source_now_, .share = &share});
    ++outcome_.files_written;
    return_freed_memory();
  }

  // The last process: what all have found, then index and config.json.
  void finish(Claim& claim) {
    std::vector<ActionResult> results(plan_.actions.size());
    std::vector<std::vector<std::size_t>> actions(plan_.files.size());
    for (std::size_t i = 0; i < plan_.actions.size(); ++i)
      actions[plan_.actions[i].file].push_back(i);
    std::map<std::string, std::string> sums;
    for (std::size_t i = 0; i < plan_.files.size(); ++i) {
      const std::string job = SharedFolder::job_of("file", i);
      Json record = folder_.done(job);
      // A file that was changed or lost since is written again.
      if (!folder_.is_intact(plan_.files[i], record) ||
          !restore_results(record, actions[i], results)) {
        write_file(claim, i);
        record = folder_.done(job);
        check(restore_results(record, actions[i], results), ErrorCode::io, kOp, "the record of '",
              shown(plan_.files[i], 120), "' in '", shown(folder_.work_folder(), 200),
              "' cannot be read; the same call writes it again");
      }
      sums[plan_.files[i]] = record["sum"].string_or("");
    }
    write_folder_files(
        source_, plan_, [&] { return provenance_(results); }, sums, folder_.path());
    folder_.remove_leftovers();
    folder_.remove_work();
    outcome_.results = std::move(results);
  }

  void check_source() const {
    check(source_identity(source_) == source_now_, ErrorCode::invalid_argument, kOp, "the source '",
          shown(source_.path(), 200),
          "' was changed while it was read; expected one that stays; start again when it is whole");
  }

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  const std::string& source_now_;
  SharedFolder& folder_;
  const MakeProvenance& provenance_;
  Milliseconds takeover_after_;
  Claims claims_;
  std::vector<ShardWork> work_;
  std::vector<std::vector<std::size_t>> needs_;
  std::vector<bool> across_;
  std::vector<Job> jobs_;
  const Job* job_ = nullptr;  // the one that is worked on; null: the last one
  std::map<std::size_t, std::vector<std::pair<std::size_t, float>>> amaxes_;  // by file
  std::uint64_t bytes_total_ = 0;
  bool stopped_ = false;
  Claims::Clock::time_point start_ = Claims::Clock::now();
  SharedOutcome outcome_;
};

}  // namespace

SharedOutcome work_on_shared(const CheckpointReader& source, const QuantizePlan& plan,
                             const QuantizeCheckpointOptions& options,
                             const SharedIdentity& identity, const std::string& source_now,
                             const std::string& out, const MakeProvenance& provenance) {
  SharedFolder folder(out, source, plan.files, identity, *options.shared, options.resume);
  return SharedWork(source, plan, options, source_now, folder, provenance).run();
}

}  // namespace octavo
