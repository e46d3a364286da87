#include "octavo/pipeline/stream/shared_work_internal.h"

#include <algorithm>
#include <map>
#include <thread>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/pipeline/output/folder_files_internal.h"
#include "octavo/pipeline/stream/shared_amaxes_internal.h"
#include "octavo/pipeline/stream/shared_jobs_internal.h"
#include "octavo/pipeline/stream/stream_files_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";
using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kFirstWait{10}, kLongestWait{1000};

class SharedWork {
 public:
  SharedWork(const CheckpointReader& source, const QuantizePlan& plan,
             const QuantizeCheckpointOptions& options, const SharedIdentity& identity,
             const std::string& source_now, SharedFolder& folder, const MakeProvenance& provenance)
      : source_(source),
        plan_(plan),
        options_(options),
        identity_(identity),
        source_now_(source_now),
        folder_(folder),
        provenance_(provenance),
        work_(shard_work(source, plan)),
        jobs_(plan, work_, *options.shared, folder),
        amaxes_(source, plan, folder) {}

  SharedOutcome run() {
    Milliseconds wait = kFirstWait;
    while (!folder_.is_complete()) {
      const TakenJob taken = next();
      if (taken.claim != nullptr) {
        do_job(taken);
        wait = kFirstWait;
      } else if (!folder_.is_complete()) {
        tell(0, jobs_.waiting_for());
        std::this_thread::sleep_for(std::min(wait, stale_after(*options_.shared) / 4));
        wait = std::min(wait + wait / 4, kLongestWait);  // late by a quarter of the time at most
      }
    }
    remove_work(folder_.path());  // what one that came last left, or made anew
    outcome_.taken_over = jobs_.taken_over();
    tell_bytes(jobs_.bytes_total(), "");
    return std::move(outcome_);
  }

 private:
  // Nothing where others have what is left, or where the last process has cleared the work folder.
  TakenJob next() {
    try {
      if (jobs_.look()) return jobs_.take_next();
    } catch (const Error&) {
      if (!folder_.is_complete()) throw;
    }
    if (!folder_.is_complete()) folder_.fail_vanished();
    return {};
  }

  // A process that was stopped for a while may find its job taken over, or finished: that is no
  // error, also where what it did fails.
  void do_job(const TakenJob& taken) {
    const SharedJob& job = taken.job;
    try {
      switch (job.kind) {
        case SharedJob::Kind::amax:
          return find_amaxes(taken);
        case SharedJob::Kind::file:
          folder_.remove_leftovers(*taken.claim, plan_.files[job.file]);
          return write_file(taken, job.file);
        case SharedJob::Kind::finish:
          return finish(taken);
      }
    } catch (const Error&) {
      if (stopped_ || !(taken.claim->is_lost() || jobs_.is_done(job))) throw;
    }
  }

  void find_amaxes(const TakenJob& taken) {
    const Json found = amaxes_.find(taken.job.file, options_of(taken, jobs_.bytes_of(taken.job)));
    check_source();
    if (taken.claim->is_still_held()) folder_.note_done(taken.job.name, found);
  }

  void write_file(const TakenJob& taken, std::size_t file) {
    const std::vector<float> amaxes = amaxes_.of_groups(file);
    const FileShare share{.file = file, .group_amaxes = &amaxes, .is_still_mine = [&] {
                            return taken.claim->is_still_held();
                          }};
    (void)stream_checkpoint(
        source_, plan_, options_of(taken, work_[file].bytes()),
        {.folder = &folder_, .file = {}, .source = source_now_, .share = &share});
    ++outcome_.files_written;
    return_freed_memory();
  }

  // What all have found, then index and config.json.
  void finish(const TakenJob& taken) {
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
        write_file(taken, i);
        record = folder_.done(job);
        check(restore_results(record, actions[i], results), ErrorCode::io, kOp, "the record of '",
              shown(plan_.files[i], 120), "' in '", shown(folder_.work_folder(), 200),
              "' cannot be read; the same call writes it again");
      }
      sums[plan_.files[i]] = record["sum"].string_or("");
    }
    const auto check_is_mine = [&] {
      check(taken.claim->is_still_held(), ErrorCode::unsupported, kOp, "another process finishes '",
            shown(folder_.path(), 200),
            "': this one gave no sign of life for long; it is left to that one");
    };
    check_is_mine();
    write_folder_files(
        source_, plan_,
        [&] {
          check_is_mine();
          return provenance_(results, identity_.sample);
        },
        sums, folder_.path());
    remove_work(folder_.path());
    outcome_.results = std::move(results);
  }

  void check_source() const {
    check(source_identity(source_) == source_now_, ErrorCode::invalid_argument, kOp, "the source '",
          shown(source_.path(), 200),
          "' was changed while it was read; expected one that stays; start again when it is whole");
  }

  // The options of a job: its progress is a part of the whole, and it stops when another process
  // has it.
  [[nodiscard]] QuantizeCheckpointOptions options_of(const TakenJob& taken, std::uint64_t bytes) {
    QuantizeCheckpointOptions options = options_;
    options.on_progress = [this, claim = taken.claim.get(), bytes](const Progress& at) {
      const double part = at.bytes_total == 0 ? 0.0
                                              : static_cast<double>(at.bytes_done) /
                                                    static_cast<double>(at.bytes_total);
      const auto done = static_cast<std::uint64_t>(part * static_cast<double>(bytes));
      claim->set_bytes_done(done);
      return tell(std::max<std::uint64_t>(1, done), at.current) && !claim->is_lost();
    };
    return options;
  }

  // Progress of the whole, as far as this process knows. False: to stop.
  bool tell(std::uint64_t of_this_job, std::string_view current) {
    if (!options_.on_progress) return true;
    const std::uint64_t done = jobs_.bytes_done() + of_this_job;
    stopped_ = !tell_bytes(std::min(done, jobs_.bytes_total()), current) || stopped_;
    if (stopped_ && of_this_job == 0)
      fail(ErrorCode::unsupported, kOp,
           "stopped as asked; finished files are kept, the same call goes on");
    return !stopped_;
  }

  bool tell_bytes(std::uint64_t done, std::string_view current) const {
    const std::chrono::duration<double> seconds = Claims::Clock::now() - start_;
    return !options_.on_progress || options_.on_progress({.bytes_done = done,
                                                          .bytes_total = jobs_.bytes_total(),
                                                          .seconds = seconds.count(),
                                                          .current = current});
  }

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  const SharedIdentity& identity_;
  const std::string& source_now_;
  SharedFolder& folder_;
  const MakeProvenance& provenance_;
  std::vector<ShardWork> work_;
  SharedJobs jobs_;
  SharedAmaxes amaxes_;
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
  return SharedWork(source, plan, options, identity, source_now, folder, provenance).run();
}

}  // namespace octavo
