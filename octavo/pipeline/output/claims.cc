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
#include <optional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/stale_internal.h"
#include "octavo/base/file/temporary_name_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/random_bits.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize", kOwnerEnd = " at ";

std::string claim_path(const std::string& folder, std::string_view job, int number) {
  return text(folder, "/", job, ".", number, kClaimEnd);
}

// A claim has a line; one of a hostile folder may have anything. Nothing where there is none.
std::optional<std::string> read_claim(const std::string& path) {
  std::array<char, 512> bytes{};
  const ssize_t got = unless_stale([&]() -> ssize_t {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    return file.number() < 0 ? -1 : read(file.number(), bytes.data(), bytes.size());
  });
  if (got < 0 && is_gone(errno)) return std::nullopt;
  return std::string(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
}

// False only where it is known that there is no such file.
bool exists(const std::string& path) {
  struct stat status {};
  return unless_stale([&] { return stat(path.c_str(), &status); }) == 0 || !is_gone(errno);
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

std::string done_path(std::string_view folder, std::string_view job) {
  return text(folder, "/", job, kDoneEnd);
}

std::string process_name() {
  std::array<char, 64> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return text(shown(host.data(), 63), " process ", getpid(), " ", hex_of(random_bits()));
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
  // It may be that of a run that began since, in a folder of the same name.
  if (is_mine()) unlink(claim_path(folder_, job_, number_).c_str());
}

// One that could not be written to is still empty.
bool Claim::is_mine() const {
  const std::optional<std::string> content = read_claim(claim_path(folder_, job_, number_));
  return content && (content->empty() || content->starts_with(owner_ + std::string(kOwnerEnd)));
}

bool Claim::is_still_held() {
  // Taken over, or all is done and the folder was cleared.
  if (!is_mine() || exists(claim_path(folder_, job_, number_ + 1))) lost_.store(true);
  return !lost_.load();
}

void Claim::run(std::chrono::milliseconds beat) {
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, beat, [&] { return stop_; })) {
    if (!is_still_held()) return;
    write_content();
  }
}

// Renamed into place: a reader sees one line or the other, also where files cannot be written
// twice. What fails here (a full disk) makes the claim stale at worst.
void Claim::write_content() {
  const std::string path = claim_path(folder_, job_, number_);
  const std::string temporary =
      text(folder_, "/", temporary_name(std::filesystem::path(path).filename().string()));
  const std::string line = text(owner_, kOwnerEnd, ++count_, ", ", bytes_done_.load(), " bytes\n");
  {
    const Descriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
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

bool Claims::look() {
  std::error_code error;
  std::map<std::string, int> claimed;
  const auto list = [&] {
    claimed.clear();
    for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end;
         at.increment(error))
      take_note(at->path().filename().string(), claimed);
    errno = error.value();
    return error ? -1 : 0;
  };
  if (unless_stale(list) != 0) {
    if (is_gone(error.value())) return false;
    fail_on_file(error.value(), folder_, kOp, "could not list '", shown(folder_, 200),
                 "': ", error.message());
  }
  claimed_ = std::move(claimed);
  return true;
}

void Claims::take_note(const std::string& name, std::map<std::string, int>& claimed) {
  if (name.ends_with(kDoneEnd) && !name.starts_with('.')) {
    done_.insert(name.substr(0, name.size() - kDoneEnd.size()));
  } else if (auto [job, number] = parse_claim(name); number >= 0) {
    int& highest = claimed.try_emplace(std::move(job), number).first->second;
    highest = std::max(highest, number);
  }
}

bool Claims::is_stale(const std::string& job, int number) {
  std::string content = read_claim(claim_path(folder_, job, number)).value_or("");
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
  return content.substr(0, content.find(kOwnerEnd));
}

std::unique_ptr<Claim> Claims::take(const std::string& job) {
  const auto claim = claimed_.find(job);
  int number = 0;
  if (claim != claimed_.end()) {
    if (!is_stale(job, claim->second)) return nullptr;
    number = claim->second + 1;
  }
  const std::string path = claim_path(folder_, job, number);
  const int descriptor = unless_stale([&] {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  });
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
