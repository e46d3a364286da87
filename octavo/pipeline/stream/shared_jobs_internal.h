// The jobs of a shared run: for each file with members of groups that span files its part of their
// amaxes, then each file, then what is written last. SharedJobs says which one this process does
// next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "octavo/pipeline/output/claims_internal.h"
#include "octavo/pipeline/output/shared_folder_internal.h"
#include "octavo/pipeline/plan/file/shard_work.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

struct SharedJob {
  enum class Kind : std::uint8_t { amax, file, finish };
  Kind kind = Kind::finish;
  std::size_t file = 0;
  std::string name{};
};

// A job that is this process's while it holds the claim. Without one others have all that is left.
struct TakenJob {
  SharedJob job{};
  std::unique_ptr<Claim> claim{};
};

class SharedJobs {
 public:
  SharedJobs(const QuantizePlan& plan, const std::vector<ShardWork>& work, const SharedRun& shared,
             const SharedFolder& folder);

  // Looks what others did since. False: the work folder is gone.
  [[nodiscard]] bool look() { return claims_.look(); }
  // As of the last look: jobs that nobody has, and then those whose owner is dead.
  [[nodiscard]] TakenJob take_next();
  // Is what the job makes there already, by another process?
  [[nodiscard]] bool is_done(const SharedJob& job) const;

  // Of the bytes of all files those that are read and written, as of the last look.
  [[nodiscard]] std::uint64_t bytes_done() const;
  [[nodiscard]] std::uint64_t bytes_of(const SharedJob& job) const;
  [[nodiscard]] std::uint64_t bytes_total() const { return bytes_total_; }
  // The file that another process has in hand, and what that one says of itself.
  [[nodiscard]] std::string waiting_for();
  [[nodiscard]] int taken_over() const { return claims_.taken_over(); }

 private:
  void order(const SharedRun& shared);
  [[nodiscard]] bool is_ready(const SharedJob& job) const;
  [[nodiscard]] TakenJob take(const SharedJob& job);

  const QuantizePlan& plan_;
  const std::vector<ShardWork>& work_;
  const SharedFolder& folder_;
  Claims claims_;
  std::vector<std::vector<std::size_t>> needs_;  // of each file those whose amaxes it waits for
  std::vector<SharedJob> jobs_;
  std::uint64_t bytes_total_ = 0;
};

}  // namespace octavo
