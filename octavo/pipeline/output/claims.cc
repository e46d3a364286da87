#include "octavo/pipeline/output/claims_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/text_hash_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";

std::string claim_path(const std::string& folder, std::string_view job, int number) {
  return text(folder, "/", job, ".", number, kClaimEnd);
}

// A claim has a line; one of a hostile folder may have anything.
std::string read_claim(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, 512> bytes{};
  const ssize_t got = file.number() < 0 ? 0 : read(file.number(), bytes.data(), bytes.size());
  return {bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

// Nobody takes a job over so often: a higher number is not of octavo.
constexpr int kMostTakeovers = 1'000'000;

// "shard-1.0.claim" to its job and number; -1: it is no claim.
std::pair<std::string, int> parse_claim(std::string_view name) {
  if (!name.ends_with(kClaimEnd)) return {"", -1};
  name.remove_suffix(kClaimEnd.size());
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return {"", -1};
  int number = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + dot + 1, end, number);
  if (error != std::errc{} || stop != end || number < 0 || number > kMostTakeovers) return {"", -1};
  return {std::string(name.substr(0, dot)), number};
}

}  // namespace

std::string process_name() {
  std::array<char, 64> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::random_device random;
  const std::uint64_t digits = (static_cast<std::uint64_t>(random()) << 32U) ^ random();
  return text(shown(host.data(), 63), " process ", getpid(), " ", hex_of(digits));
}

Claim::Claim(std::string folder, std::string job, int number, std::string owner,
             std::chrono::milliseconds beat)
    : folder_(std::move(folder)), job_(std::move(job)), owner_(std::move(owner)), number_(number) {
  write_content();
  thread_ = std::thread([this, beat] { run(beat); });
}

Claim::~Claim() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
  unlink(claim_path(folder_, job_, number_).c_str());
}

void Claim::run(std::chrono::milliseconds beat) {
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, beat, [&] { return stop_; })) {
    struct stat status {};
    // Taken over, or all is done and the folder was cleared.
    if (stat(claim_path(folder_, job_, number_ + 1).c_str(), &status) == 0 ||
        stat(folder_.c_str(), &status) != 0)
      lost_.store(true);
    if (lost_.load()) return;
    write_content();
  }
}

// Renamed into place: a reader sees one line or the other, also where files cannot be written
// twice. What fails here (a full disk) makes the claim stale at worst.
void Claim::write_content() {
  const std::string path = claim_path(folder_, job_, number_);
  const std::string temporary =
      text(folder_, "/.", job_, ".", number_, "-", hex_of(text_hash(owner_)), ".octavo-tmp");
  const std::string line = text(owner_, " at ", ++count_, ", ", bytes_done_.load(), " bytes\n");
  {
    const Descriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (file.number() < 0) return;
    if (write(file.number(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      unlink(temporary.c_str());
      return;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

Claims::Claims(std::string folder, std::string owner, std::chrono::milliseconds takeover_after)
    : folder_(std::move(folder)), owner_(std::move(owner)), takeover_after_(takeover_after) {}

std::string Claims::done_path(std::string_view job) const {
  return text(folder_, "/", job, kDoneEnd);
}

bool Claims::look() {
  std::error_code error;
  std::map<std::string, int> claimed;
  for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(kDoneEnd) && !name.starts_with('.')) {
      done_.insert(name.substr(0, name.size() - kDoneEnd.size()));
    } else if (auto [job, number] = parse_claim(name); number >= 0) {
      int& highest = claimed.try_emplace(std::move(job), number).first->second;
      highest = std::max(highest, number);
    }
  }
  if (error == std::errc::no_such_file_or_directory) return false;
  if (error)
    fail_on_file(error.value(), folder_, kOp, "could not list '", shown(folder_, 200),
                 "': ", error.message());
  claimed_ = std::move(claimed);
  return true;
}

bool Claims::is_stale(const std::string& job, int number) {
  std::string content = read_claim(claim_path(folder_, job, number));
  const Clock::time_point now = Clock::now();
  Seen& seen = seen_[job];
  if (seen.since == Clock::time_point{} || seen.number != number || seen.content != content)
    seen = {number, std::move(content), now};
  return now - seen.since > takeover_after_;
}

std::string Claims::observe(const std::string& job) {
  const auto claim = claimed_.find(job);
  if (claim == claimed_.end()) return "";
  (void)is_stale(job, claim->second);
  const std::string& content = seen_[job].content;
  return content.substr(0, content.find(" at "));
}

std::unique_ptr<Claim> Claims::take(const std::string& job) {
  const auto claim = claimed_.find(job);
  int number = 0;
  if (claim != claimed_.end()) {
    if (!is_stale(job, claim->second)) return nullptr;
    number = claim->second + 1;
  }
  const std::string path = claim_path(folder_, job, number);
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) {
    const int error = errno;
    claimed_[job] = number;  // someone was first
    if (error == EEXIST) return nullptr;
    fail_on_file(error, path, kOp, "could not claim '", shown(job), "' in '", shown(folder_, 200),
                 "': ", std::strerror(error),
                 error == ENOSPC || error == EDQUOT
                     ? "; free space, and start this process again: it goes on from here"
                     : "; expected a folder that this process may write to");
  }
  close(descriptor);
  if (number > 0) ++taken_over_;
  seen_.erase(job);
  claimed_[job] = number;
  constexpr int kBeats = 8;  // in the time after which a claim is stale
  return std::make_unique<Claim>(folder_, job, number, owner_,
                                 std::max(takeover_after_ / kBeats, std::chrono::milliseconds(1)));
}

}  // namespace octavo
