#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <thread>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/stale_internal.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/output/claims_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/output/run_record_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize", kName = "run.json", kJob = "run";
constexpr std::uint64_t kMaxBytes = 1U << 16;
constexpr std::chrono::milliseconds kFirstWait{5}, kLongestWait{500};

std::string shown_path(const std::string& path) { return text("'", shown(path, 200), "'"); }
std::string path_in(const std::string& work) { return text(work, "/", kName); }

void make_folder(const std::string& work) {
  std::error_code error;  // with what it is in: another process that gave up may have removed it
  const auto make = [&] {
    std::filesystem::create_directories(work, error);
    errno = error.value();
    return error ? -1 : 0;
  };
  if (unless_stale(make) != 0)
    fail_on_file(error.value(), work, kOp, "could not make the folder ", shown_path(work), ": ",
                 error.message(), "; expected a folder that this process may write to");
}

// Throws where a run has finished something: its record is lost, and no other may take its place.
void refuse_records(const std::string& work) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator at(work, ignored), end; !ignored && at != end;
       at.increment(ignored))
    if (at->path().filename().string().ends_with(kDoneEnd))
      fail_on_file(EIO, path_in(work), kOp, shown_path(path_in(work)),
                   " is damaged or lost, the record of a run whose work is beside it: it cannot be "
                   "seen which plan made that; give a new folder, or remove that one");
}

// Null where there is none, or where it is no record: a process that died as it made it. Storage
// that does not give it now is an error: it may be the record of another run, which nobody may
// replace.
Json read_record(const std::string& work) {
  std::string content;
  try {
    content = read_small_file(path_in(work), kMaxBytes);
  } catch (const FileError& error) {
    if (is_gone(error.number())) return {};
    throw;
  } catch (const Error&) {  // it is too long
  }
  try {
    Json record = parse_json(content, kName);
    if (record.is_object()) return record;
  } catch (const Error&) {
  }
  refuse_records(work);
  return {};
}

// Null where another process has it, or where one that gave up removed the folder.
std::unique_ptr<Claim> take(Claims& claims, const std::string& work) {
  try {
    return claims.take(std::string(kJob));
  } catch (const Error&) {
    std::error_code ignored;
    if (std::filesystem::is_directory(work, ignored)) throw;
    return nullptr;
  }
}

// False: to be replaced by `run`.
bool is_joined(const std::string& folder, const Json& there, const Json& run, bool resume) {
  const auto differs = [&](std::string_view key) { return !(there[key] == run[key]); };
  if (differs("octavo_run") || differs("plan"))
    fail_on_file(EEXIST, folder, kOp, shown_path(folder),
                 " is being written by another plan, or by another version of octavo; give the "
                 "same plan to all processes, or another folder",
                 or_remove(folder));
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

// The record is a job like any other: the process that has its claim writes it, whole, and one that
// died before it did is taken over.
void join_run(const std::string& folder, const std::string& work, const Json& run, bool resume,
              std::chrono::milliseconds takeover_after) {
  const std::string content = run.dump() + "\n";
  Claims claims(work, process_name(), takeover_after);
  const auto write = [&] { write_whole_file(std::string(kOp), path_in(work), content); };
  for (std::chrono::milliseconds wait = kFirstWait;; wait = std::min(2 * wait, kLongestWait)) {
    make_folder(work);
    Json there = read_record(work);
    if (!there.is_object() && claims.look()) {
      const std::unique_ptr<Claim> claim = take(claims, work);
      if (claim != nullptr) {
        there = read_record(work);  // by a process that had the claim before
        if (!there.is_object() && claim->is_still_held()) {
          refuse_records(work);
          write();
        }
        // What is there now counts, also where this process was stopped for long and taken over.
        there = read_record(work);
      }
    }
    if (there.is_object()) {
      if (!is_joined(folder, there, run, resume)) write();
      return;
    }
    std::this_thread::sleep_for(std::min(wait, takeover_after));
  }
}

}  // namespace octavo
