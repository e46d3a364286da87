// Claims: which process works on which job, as files in a folder that all of them see. Creating a
// file that must not exist (O_EXCL) and renaming are all that is asked of the storage: no locks,
// and no clocks that are compared between machines.
//
// A claim is a file "JOB.0.claim". While its job is worked on, its owner counts up in it. A claim
// whose content another process sees unchanged for a time, by that process's own monotonic clock,
// is stale: its job is taken over by creating "JOB.1.claim", which one process alone succeeds in.
// An owner that was only stopped sees the higher number and leaves the job, and the files of the
// one that has it now. Even where two processes work on one job for a moment nothing is lost: both
// make the same bytes, under temporary names of their own, and rename them into place.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

namespace octavo {

inline constexpr std::string_view kClaimEnd = ".claim", kDoneEnd = ".done.json";
// What is recorded of a finished job; others see it once it is whole.
[[nodiscard]] std::string done_path(std::string_view folder, std::string_view job);

// A claim that this process holds. Destroyed: given back.
class Claim {
 public:
  // The file exists and is this process's. A thread counts up in it.
  Claim(std::string folder, std::string job, int number, std::string owner,
        std::chrono::milliseconds beat);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  [[nodiscard]] const std::string& job() const { return job_; }
  // Has another process taken the job over, as far as is known?
  [[nodiscard]] bool is_lost() const { return lost_.load(); }
  // Looks: before anything is renamed to a final name, or removed. False: the job is another's.
  [[nodiscard]] bool is_still_held();
  // For readers: the bytes of the job that are done.
  void set_bytes_done(std::uint64_t bytes) { bytes_done_.store(bytes); }

 private:
  [[nodiscard]] bool is_mine() const;
  void run(std::chrono::milliseconds beat);
  void write_content();

  std::string folder_, job_, owner_;
  int number_;
  std::uint64_t count_ = 0;
  std::atomic<std::uint64_t> bytes_done_{0};
  std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::thread thread_;
};

class Claims {
 public:
  using Clock = std::chrono::steady_clock;

  // `owner`: what others are told of this process. A claim that does not change for
  // `takeover_after` is stale.
  Claims(std::string folder, std::string owner, std::chrono::milliseconds takeover_after);

  // Lists the folder. False: it is gone.
  [[nodiscard]] bool look();
  // As of the last look.
  [[nodiscard]] bool is_done(const std::string& job) const { return done_.contains(job); }
  [[nodiscard]] bool is_claimed(const std::string& job) const { return claimed_.contains(job); }
  // Watches a claim of another: its content and since when it is so. What the owner says of itself.
  std::string observe(const std::string& job);
  // Takes a job that is not claimed, or whose claim is stale; null where another process has it.
  [[nodiscard]] std::unique_ptr<Claim> take(const std::string& job);
  // How many jobs were taken over from processes that stopped counting.
  [[nodiscard]] int taken_over() const { return taken_over_; }

 private:
  struct Seen {
    int number = 0;
    std::string content{};
    Clock::time_point since{};
  };
  void take_note(const std::string& name, std::map<std::string, int>& claimed);
  [[nodiscard]] bool is_stale(const std::string& job, int number);

  std::string folder_, owner_;
  std::chrono::milliseconds takeover_after_;
  std::map<std::string, int> claimed_;  // the highest number
  std::set<std::string> done_;
  std::map<std::string, Seen> seen_;
  int taken_over_ = 0;
};

// A name for this process among those of several machines: its host, its id and random digits.
[[nodiscard]] std::string process_name();

}  // namespace octavo
