#include "octavo/pipeline/output/shared_folder_internal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "octavo/base/error.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/stale_internal.h"
#include "octavo/base/file/temporary_name_internal.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/output/complete_folder_internal.h"
#include "octavo/pipeline/output/run_record_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kOp = "quantize";
constexpr std::uint64_t kMaxRecordBytes = 1U << 30;
constexpr int kRunVersion = 1;

std::string shown_path(const std::string& path) { return text("'", shown(path, 200), "'"); }

bool exists(const std::string& path) {
  struct stat status {};
  return unless_stale([&] { return lstat(path.c_str(), &status); }) == 0;
}

// Names in a folder; none where it is gone.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  const auto list = [&] {
    out.clear();
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      out.push_back(at->path().filename().string());
    errno = error.value();
    return error ? -1 : 0;
  };
  if (unless_stale(list) != 0 && !is_gone(error.value()))
    fail_on_file(error.value(), folder, kOp, "could not list ", shown_path(folder), ": ",
                 error.message());
  return out;
}

Json json_of(const SharedIdentity& identity, const SharedRun& shared) {
  return Json::object({{"octavo_run", kRunVersion},
                       {"plan", identity.plan},
                       {"sample", identity.sample},
                       {"measure", identity.measure},
                       {"world", shared.world},
                       {"takeover_after", shared.takeover_after}});
}

}  // namespace

SharedFolder::SharedFolder(const std::string& path, const CheckpointReader& source,
                           const std::vector<std::string>& files, const SharedIdentity& identity,
                           const SharedRun& shared, bool resume)
    : path_(path), work_(text(path, "/", kSharedWork)) {
  for (std::size_t i = 0; i < files.size(); ++i) files_[files[i]] = i;
  const bool made = make_output_folder(path_, source);
  if (is_complete()) return;  // the last process finished it a moment ago
  try {
    check_strangers();
    refuse_links(path_);
    join_run(path_, work_, json_of(identity, shared), resume, stale_after(shared));
  } catch (const Error&) {
    if (is_complete()) return;  // or in this one
    std::error_code ignored;    // only where they are empty
    fs::remove(work_, ignored);
    if (made) fs::remove(path_, ignored);
    throw;
  }
}

// A new run begins in an empty folder. One that has begun wrote its record before any other file,
// so that records are looked for after the folder was listed.
void SharedFolder::check_strangers() const {
  std::string stranger;
  for (const std::string& name : names_in(path_)) {
    if (name == kProgressFile)
      fail_on_file(EEXIST, path_, kOp, shown_path(path_),
                   " holds the unfinished work of a call without a plan; resume that",
                   or_remove(path_));
    if (name != kSharedWork && !is_temporary_name(name)) stranger = name;
  }
  if (!stranger.empty() && !has_run(work_))
    fail_on_file(ENOTEMPTY, path_, kOp, shown_path(path_), " is not empty (it has '",
                 shown(stranger, 80), "'); give a new folder", or_remove(path_));
}

std::string SharedFolder::path_of(std::string_view name) const { return text(path_, "/", name); }

std::string SharedFolder::job_of(std::string_view kind, std::size_t file) {
  char number[16];
  std::snprintf(number, sizeof number, "%05zu", file + 1);
  return text(kind, "-", number);
}

// A share of the files asks for none of the others.
const Json& SharedFolder::finished(const std::string&) {
  static const Json kNone;
  return kNone;
}

void SharedFolder::note_finished(const std::string& name, std::uint64_t sum, std::size_t count,
                                 const std::function<Json(std::size_t)>& tensor) {
  Json record =
      Json::object({{"file", name}, {"is", content_state(path_of(name))}, {"sum", hex_of(sum)}});
  Json tensors = Json::array();
  for (std::size_t i = 0; i < count; ++i) tensors.push(tensor(i));
  record.set("tensors", std::move(tensors));
  note_done(job_of("file", files_.at(name)), record);
}

void SharedFolder::note_written(const std::string&, std::uint64_t) {}

void SharedFolder::check_room(std::uint64_t bytes) const { check_free_space(path_, bytes); }

Json SharedFolder::done(const std::string& job) const {
  try {
    return parse_json(read_small_file(done_path(work_, job), kMaxRecordBytes), job);
  } catch (const Error&) {
    return {};
  }
}

bool SharedFolder::has_done(const std::string& job) const { return exists(done_path(work_, job)); }

void SharedFolder::note_done(const std::string& job, const Json& record) const {
  write_whole_file(std::string(kOp), done_path(work_, job), record.dump(0) + "\n");
}

bool SharedFolder::is_intact(const std::string& name, const Json& record) const {
  return record["is"].string_or("") == content_state(path_of(name));
}

bool SharedFolder::is_complete() const { return octavo::is_complete(path_); }

// Listed first: a process that has taken the job over since makes its temporary file after its
// claim, which is looked for then. No name comes twice.
void SharedFolder::remove_leftovers(Claim& mine, std::string_view name) const {
  std::vector<std::string> leftovers;
  for (const std::string& found : names_in(path_))
    if (name.empty() ? is_temporary_name(found) : is_temporary_name_of(found, name))
      leftovers.push_back(found);
  if (!mine.is_still_held()) return;
  for (const std::string& found : leftovers) unlink(path_of(found).c_str());
}

void remove_work(const std::string& folder) {
  if (!is_complete(folder)) return;
  const std::string work = text(folder, "/", kSharedWork);
  std::error_code ignored;
  if (fs::is_symlink(work, ignored)) return;  // octavo makes none
  for (const std::string& found : names_in(folder))
    if (is_temporary_name(found)) unlink(text(folder, "/", found).c_str());
  // Others remove it at the same time, and a claim that is still held writes into it: what one
  // attempt leaves, another takes.
  for (int attempt = 0; attempt < 10; ++attempt) {
    fs::remove_all(work, ignored);
    if (!exists(work)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1 << attempt));
  }
}

void SharedFolder::fail_vanished() const {
  fail_on_file(ENOENT, path_, kOp, shown_path(work_),
               " is gone: it was removed, or its storage is no longer there; nothing is left half "
               "written under a final name; start again when the storage is back");
}

}  // namespace octavo
