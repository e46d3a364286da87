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
  return lstat(path.c_str(), &status) == 0;
}

// Names in a folder; none where it is gone.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    out.push_back(at->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory)
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
    joined_ = true;
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
      fail_on_file(
          EEXIST, path_, kOp, shown_path(path_),
          " holds the unfinished work of a call without a plan; resume that, or remove the "
          "folder");
    if (name != kSharedWork && !is_leftover(name)) stranger = name;
  }
  if (!stranger.empty() && !has_run(work_))
    fail_on_file(ENOTEMPTY, path_, kOp, shown_path(path_), " is not empty (it has '",
                 shown(stranger, 80), "'); give a new folder, or remove this one");
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
    return parse_json(read_small_file(text(work_, "/", job, kDoneEnd), kMaxRecordBytes), job);
  } catch (const Error&) {
    return {};
  }
}

bool SharedFolder::has_done(const std::string& job) const {
  return exists(text(work_, "/", job, kDoneEnd));
}

void SharedFolder::note_done(const std::string& job, const Json& record) const {
  write_whole_file(std::string(kOp), text(work_, "/", job, kDoneEnd), record.dump(0) + "\n");
}

bool SharedFolder::is_intact(const std::string& name, const Json& record) const {
  return record["is"].string_or("") == content_state(path_of(name));
}

bool SharedFolder::is_complete() const { return octavo::is_complete(path_); }

void SharedFolder::remove_leftovers(std::string_view name) const {
  constexpr std::size_t kKept = 64;  // characters of a name in its temporary one
  if (name.size() > kKept) return;   // it may be that of another file
  const std::string begin = text(".", name, ".");
  for (const std::string& found : names_in(path_))
    if (is_leftover(found) && (name.empty() || found.starts_with(begin)))
      unlink(path_of(found).c_str());
}

void SharedFolder::remove_work() const {
  if (!joined_) return;
  // Others remove it at the same time, and a claim that is still held writes into it: what one
  // attempt leaves, another takes.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::error_code ignored;
    fs::remove_all(work_, ignored);
    if (!fs::exists(work_, ignored)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1 << attempt));
  }
}

void SharedFolder::fail_vanished() const {
  fail_on_file(ENOENT, path_, kOp, shown_path(work_),
               " is gone: it was removed, or its storage is no longer there; nothing is left half "
               "written under a final name; start again when the storage is back");
}

}  // namespace octavo
