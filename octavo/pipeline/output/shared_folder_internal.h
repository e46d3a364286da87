// The output folder of several processes (plan/shared_run.h). Beside the model's files, until all
// is done, it has the folder octavo-work: a record of the run, claims, and records of what is
// finished. A file under a final name is whole; the folder is complete when it has a config.json.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/pipeline/output/claims_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/shared_run.h"

namespace octavo {

// What must be the same in all processes.
struct SharedIdentity {
  std::string plan;    // check_plan_file(): source headers, options, version
  std::string sample;  // source_sample()
  bool measure = true;
};

class SharedFolder : public ShardFolder {
 public:
  // Makes the folder or joins it. Throws Error with a fix: the folder is the source's, holds other
  // files, or processes with another plan, source, world or takeover_after are at work in it. With
  // `resume` another world may go on: no process of the earlier one may be left.
  SharedFolder(const std::string& path, const CheckpointReader& source,
               const std::vector<std::string>& files, const SharedIdentity& identity,
               const SharedRun& shared, bool resume);

  [[nodiscard]] std::string path_of(std::string_view name) const override;
  [[nodiscard]] const Json& finished(const std::string& name) override;
  void note_finished(const std::string& name, std::uint64_t sum, std::size_t count,
                     const std::function<Json(std::size_t)>& tensor) override;
  void note_written(const std::string& name, std::uint64_t sum) override;
  void check_room(std::uint64_t bytes) const override;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& work_folder() const { return work_; }
  // "file-00001" of the first file, "amax-00001".
  [[nodiscard]] static std::string job_of(std::string_view kind, std::size_t file);
  // What is recorded of a finished job; null where that cannot be read.
  [[nodiscard]] Json done(const std::string& job) const;
  [[nodiscard]] bool has_done(const std::string& job) const;
  void note_done(const std::string& job, const Json& record) const;
  // Is this file what its record says? (Its size and header: the data were hashed and flushed.)
  [[nodiscard]] bool is_intact(const std::string& name, const Json& record) const;
  // Did some process write config.json? (complete_folder_internal.h)
  [[nodiscard]] bool is_complete() const;
  // Temporary files of a killed process: of this output file, or all. Of others that were thrown
  // out of the job, but not of one that has the job since: `mine` is the claim of it.
  void remove_leftovers(Claim& mine, std::string_view name = {}) const;
  [[noreturn]] void fail_vanished() const;

 private:
  void check_strangers() const;

  std::string path_, work_;
  std::map<std::string, std::size_t> files_;
};

// What a run leaves in a folder that is complete, where it was killed at its very end, and what
// those leave that were thrown out of it: the work folder, and temporary files. Nothing in a folder
// that is not complete.
void remove_work(const std::string& folder);

}  // namespace octavo
