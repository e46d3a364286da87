#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "octavo/base/error.h"
#include "octavo/base/file/descriptor_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/output/run_record_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize", kName = "run.json";
constexpr std::uint64_t kMaxBytes = 1U << 16;
// A record is written right after it is made; storage may tell of that late.
constexpr std::chrono::seconds kMostWait{10};
constexpr std::chrono::milliseconds kWait{20};

std::string shown_path(const std::string& path) { return text("'", shown(path, 200), "'"); }
std::string path_in(const std::string& work) { return text(work, "/", kName); }

void make_folder(const std::string& work) {
  std::error_code error;  // with what it is in: another process that gave up may have removed it
  std::filesystem::create_directories(work, error);
  if (error)
    fail_on_file(error.value(), work, kOp, "could not make the folder ", shown_path(work), ": ",
                 error.message(), "; expected a folder that this process may write to");
}

// True: this process made the record. The name is never free again while the run lasts, so that
// who made it owns what is in it.
bool make_record(const std::string& work, const std::string& content) {
  const std::string path = path_in(work);
  const Descriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.number() < 0 && (errno == EEXIST || errno == ENOENT)) return false;
  if (file.number() >= 0 &&
      write(file.number(), content.data(), content.size()) ==
          static_cast<ssize_t>(content.size()) &&
      fsync(file.number()) == 0)
    return true;
  const int error = errno;
  if (file.number() >= 0) unlink(path.c_str());
  fail_on_file(error, path, kOp, "could not write ", shown_path(path), ": ", std::strerror(error),
               "; expected a folder with space that this process may write to");
}

// Null where it cannot be read (yet).
Json read_record(const std::string& work) {
  try {
    return parse_json(read_small_file(path_in(work), kMaxBytes), kName);
  } catch (const Error&) {
    return {};
  }
}

// False: to be replaced by `run`.
bool is_joined(const std::string& folder, const Json& there, const Json& run, bool resume) {
  const auto differs = [&](std::string_view key) { return !(there[key] == run[key]); };
  if (differs("octavo_run") || differs("plan"))
    fail_on_file(EEXIST, folder, kOp, shown_path(folder),
                 " is being written by another plan, or by another version of octavo; give the "
                 "same plan to all processes, another folder, or remove this one");
  if (differs("sample"))
    fail_on_file(EEXIST, folder, kOp, shown_path(folder),
                 " is being made from a model with other values: the one given has changed, or is "
                 "another with the same tensors; give all processes the same model, or remove the "
                 "folder");
  if (differs("measure"))
    fail_on_file(EEXIST, folder, kOp, shown_path(folder),
                 " is being written by processes that measure otherwise; give all the same "
                 "options");
  if (!differs("world") && !differs("takeover_after")) return true;
  if (resume) return false;
  const std::string_view what = differs("world") ? "world" : "takeover_after";
  fail_on_file(EEXIST, folder, kOp, shown_path(folder), " was begun with ", what, " ",
               shown(there[what].dump(0)), ", and this process says ", run[what].dump(0),
               "; give all processes the same, or, where none of the earlier ones is left, let it "
               "go on (option resume)");
}

}  // namespace

bool has_run(const std::string& work) {
  struct stat status {};
  return lstat(path_in(work).c_str(), &status) == 0;
}

void join_run(const std::string& folder, const std::string& work, const Json& run, bool resume) {
  const auto start = std::chrono::steady_clock::now();
  const std::string content = run.dump() + "\n";
  while (true) {
    make_folder(work);
    if (make_record(work, content)) return;
    const Json there = read_record(work);
    if (there.is_object()) {
      if (!is_joined(folder, there, run, resume))
        write_whole_file(std::string(kOp), path_in(work), content);
      return;
    }
    if (std::chrono::steady_clock::now() - start > kMostWait)
      fail_on_file(EIO, folder, kOp, "the record of the run in ", shown_path(path_in(work)),
                   " cannot be read: its process may have died as it wrote it; remove the folder ",
                   shown_path(folder), " and start again");
    std::this_thread::sleep_for(kWait);
  }
}

}  // namespace octavo
