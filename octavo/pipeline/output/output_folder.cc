#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "octavo/base/error.h"
#include "octavo/base/file/cached_pages_internal.h"
#include "octavo/base/file/fail_on_file.h"
#include "octavo/base/file/file_id.h"
#include "octavo/base/file/stale_internal.h"
#include "octavo/base/file/temporary_name_internal.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/checkpoint/deleted_shards_internal.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"
#include "octavo/safetensors/data_checksum.h"
#include "octavo/safetensors/file_reader.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";
constexpr std::uint64_t kMaxRecordBytes = 1U << 30;
constexpr int kRecordVersion = 5;

// Of the shards that are still there.
bool has_samples(const Json& recorded, const std::vector<std::string>& now) {
  const std::vector<Json>& then = recorded.elements();
  if (then.size() != now.size()) return false;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (!now[i].empty() && then[i].string_or("") != now[i]) return false;
  return true;
}

// Identifies a finished file of this folder, which one process writes: its time, too.
std::string finished_state(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "no file";
  return text(content_state(path), " ", status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec);
}

std::string shown_path(const std::string& path) { return text("'", shown(path, 200), "'"); }

}  // namespace

std::string content_state_of(const safetensors::Header& header) {
  return text(header.data_begin + header.data_bytes, " ",
              hex_of(text_hash(safetensors::write_header(header))));
}

std::string content_state(const std::string& path) {
  struct stat status {};
  const auto look = [&] { return stat(path.c_str(), &status); };
  if (unless_stale(look) != 0 || !S_ISREG(status.st_mode)) return "no file";
  try {
    return content_state_of(safetensors::FileReader(path).header());  // which checks the size
  } catch (const Error&) {
    return "damaged";
  }
}

std::string or_remove(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(text(folder, "/", kDeletedShards), ignored))
    return ", or remove the folder";
  return text(
      ". Do not remove the folder: files of the source were deleted for it, and it alone "
      "has what was made of them");
}

bool make_output_folder(const std::string& path, const CheckpointReader& source) {
  std::error_code error;
  const auto target = file_id(path);
  const std::string beside = source.is_folder()
                                 ? source.path()
                                 : std::filesystem::path(source.path()).parent_path().string();
  if (target && target == file_id(beside.empty() ? "." : beside))
    fail_on_file(
        EEXIST, path, kOp, shown_path(path),
        " is where the source is; expected another folder; a checkpoint is never changed in place");
  const bool made = std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path))
    fail_on_file(error ? error.value() : ENOTDIR, path, kOp, "could not make the folder ",
                 shown_path(path), ": ", error ? error.message() : "something else has that name");
  return made;
}

void check_free_space(const std::string& folder, std::uint64_t bytes) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return;  // opening the files will report it
  const auto room = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  if (room < bytes)
    fail_on_file(ENOSPC, folder, kOp, shown_path(folder), " needs ", bytes,
                 " bytes and its disk has ", room, "; free space or write elsewhere");
}

bool has_checksum(const std::string& path, std::string_view sum) {
  try {
    drop_cached(path);
    return safetensors::has_checksum(safetensors::FileReader(path), sum);
  } catch (const Error&) {
    return false;
  }
}

std::string source_identity(const CheckpointReader& source) {
  std::uint64_t hash = text_hash(source.config().dump(0));
  for (const auto& file : source.files()) {
    struct stat status {};
    if (!stat_shard(file.path(), source.deleted_shards(), status))
      fail_on_file(errno, file.path(), kOp, "could not look at ", shown_path(file.path()), ": ",
                   std::strerror(errno));
    hash = text_hash(text(std::filesystem::path(file.path()).filename().string(), " ",
                          status.st_size, " ", status.st_mtim.tv_sec, " ", status.st_mtim.tv_nsec),
                     hash);
    for (const auto& tensor : file.header().tensors)
      hash = text_hash(text(tensor.name, " ", tensor.begin, " ", tensor.end, " ",
                            safetensors::stored_name(tensor.type)),
                       hash);
  }
  return hex_of(hash);
}

FolderLock::FolderLock(const std::string& folder) { take(folder); }

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

void FolderLock::take(const std::string& folder) {
  descriptor_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail_on_file(EBUSY, folder, kOp, shown_path(folder), " is being written by another process");
}

OutputFolder::OutputFolder(const std::string& path, const CheckpointReader& source,
                           const WorkIdentity& identity, bool resume)
    : path_(path) {
  make_or_check(source, resume);
  load_record(identity);
  remove_leftovers();
}

std::string OutputFolder::sample() const {
  std::vector<std::string> samples;
  for (const Json& one : record_["samples"].elements()) samples.emplace_back(one.string_or(""));
  return source_sample_of(std::string(record_["source"].string_or("")), samples);
}

std::string OutputFolder::path_of(std::string_view name) const { return text(path_, "/", name); }

void OutputFolder::make_or_check(const CheckpointReader& source, bool resume) {
  std::error_code error;
  made_ = make_output_folder(path_, source);
  lock_.take(path_);
  bool empty = true, shared = false;
  for (std::filesystem::directory_iterator at(path_, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    has_record_ |= name == kProgressFile;
    shared |= name == kSharedWork;
    empty = empty && is_temporary_name(name);
  }
  if (error)
    fail_on_file(error.value(), path_, kOp, "could not list ", shown_path(path_), ": ",
                 error.message());
  if (shared)
    fail_on_file(EEXIST, path_, kOp, shown_path(path_),
                 " holds the work of processes that share a plan; go on with that (option plan)",
                 or_remove(path_));
  if (has_record_ && !resume)
    fail_on_file(EEXIST, path_, kOp, shown_path(path_),
                 " holds the unfinished work of an earlier call; resume it", or_remove(path_));
  if (!has_record_ && !empty)
    fail_on_file(ENOTEMPTY, path_, kOp, shown_path(path_), " is not empty",
                 resume ? " and holds no unfinished work" : "", "; give a new folder",
                 or_remove(path_));
  refuse_links(path_);
}

// Files are renamed into place; at a symbolic link that would replace what it points to. This
// folder is octavo's own, and octavo makes no links.
void refuse_links(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (at->is_symlink(ignored))
      fail_on_file(ELOOP, at->path().string(), kOp, shown_path(folder), " holds the link '",
                   shown(at->path().lexically_relative(folder).string(), 200),
                   "', and what it points to would be written; remove the link", or_remove(folder));
  }
}

void OutputFolder::load_record(const WorkIdentity& identity) {
  if (has_record_) {
    try {
      record_ = parse_json(read_small_file(path_of(kProgressFile), kMaxRecordBytes), kProgressFile);
    } catch (const Error& error) {
      fail_again(error, kOp,
                 text("the record of the work in ", shown_path(path_), " (", kProgressFile,
                      ") cannot be read: ", reason_of(error),
                      "; put back the one that was there, or give a new folder", or_remove(path_)));
    }
    const auto differs = [&](std::string_view what, std::string_view fix) {
      fail(ErrorCode::invalid_argument, kOp, "the work in ", shown_path(path_), " was begun with ",
           what, "; ", fix, or_remove(path_));
    };
    if (record_["octavo_progress"].integer_or(0) != kRecordVersion)
      differs("another version of octavo", "finish it with that");
    if (record_["options"].string_or("") != identity.options)
      differs("other options", "give the same ones");
    touched_ = record_["times"].string_or("") != identity.times;
    if (record_["source"].string_or("") != identity.source ||
        (touched_ && !has_samples(record_["samples"], identity.samples())))
      differs("another source, or the source has changed since", "give the same one");
    files_ = record_["files"];
    record_.remove("files");
    if (!files_.is_object()) files_ = Json::object();
    return;
  }
  record_.set("octavo_progress", kRecordVersion);
  record_.set("options", identity.options);
  record_.set("source", identity.source);
  record_.set("times", identity.times);
  Json samples = Json::array();
  for (const std::string& one : identity.samples()) samples.push(one);
  record_.set("samples", std::move(samples));
  write_record();
}

// The records of files are at the end, and one more is appended to a copy: in memory they would be
// the largest object.
void OutputFolder::write_record(const std::function<void(const Put&)>& put_more) {
  WholeFile file(std::string(kOp), path_of(kProgressFile));
  std::uint64_t bytes = 0;
  std::string gathered;
  const auto flush = [&] {
    file.write(std::as_bytes(std::span(gathered)));
    bytes += gathered.size();
    gathered.clear();
  };
  const Put put = [&](std::string_view piece) {
    gathered += piece;
    if (gathered.size() >= 1U << 16) flush();
  };
  if (record_bytes_ > 0) {
    copy_record(file);
    bytes = record_bytes_;
  } else {
    std::string head = record_.dump(0);
    head.back() = ',';
    put(head);
    put("\"files\":{");
    for (const auto& [of, what] : files_.members())
      put(text(record_files_++ > 0 ? "," : "", Json(of).dump(0), ":", what.dump(0)));
    files_ = Json::object();
  }
  if (put_more) put_more(put);
  flush();
  record_bytes_ = bytes;
  put("}}");
  flush();
  file.commit();
}

void OutputFolder::copy_record(WholeFile& to) const {
  const std::string path = path_of(kProgressFile);
  std::ifstream from(path, std::ios::binary);
  std::vector<char> window(1 << 20);
  for (std::uint64_t done = 0; done < record_bytes_;) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(window.size(), record_bytes_ - done));
    if (!from.read(window.data(), static_cast<std::streamsize>(size)))
      fail_on_file(EIO, path, kOp, "could not read ", shown_path(path), ", the record of the work");
    to.write(std::as_bytes(std::span(window).first(size)));
    done += size;
  }
}

// Removes temporary files of a killed process; this folder is locked, so that process is not
// running.
void OutputFolder::remove_leftovers() const {
  std::error_code error;
  std::vector<std::filesystem::path> leftovers;
  for (std::filesystem::directory_iterator at(path_, error), end; !error && at != end;
       at.increment(error))
    if (is_temporary_name(at->path().filename().string())) leftovers.push_back(at->path());
  for (const auto& leftover : leftovers) std::filesystem::remove(leftover, error);
}

const Json& OutputFolder::finished(const std::string& name) {
  static const Json kNone;
  const Json& kept = files_[name];
  if (!kept.is_null()) {
    const std::string path = path_of(name);
    if (kept["is"].string_or("") == finished_state(path) &&
        has_checksum(path, kept["sum"].string_or(""))) {
      sums_[name] = kept["sum"].string_or("");
      return kept;
    }
  }
  files_.remove(name);  // will be recorded again
  return kNone;
}

void OutputFolder::note_finished(const std::string& name, std::uint64_t sum, std::size_t count,
                                 const std::function<Json(std::size_t)>& tensor) {
  note_written(name, sum);
  const Json about = Json::object({{"is", finished_state(path_of(name))}, {"sum", hex_of(sum)}});
  write_record([&](const Put& put) {
    put(text(record_files_++ > 0 ? "," : "", Json(name).dump(0), ":"));
    std::string head = about.dump(0);
    head.back() = ',';
    put(head);
    put("\"tensors\":[");
    for (std::size_t i = 0; i < count; ++i) {
      put(i > 0 ? "," : "");
      put(tensor(i).dump(0));
    }
    put("]}");
  });
}

void OutputFolder::note_written(const std::string& name, std::uint64_t sum) {
  written_.push_back(name);
  sums_[name] = hex_of(sum);
}

void OutputFolder::remove_record() {
  std::error_code error;
  std::filesystem::remove(path_of(kProgressFile), error);
}

void OutputFolder::abandon(bool useless) noexcept {
  if (has_record_ || (!useless && !written_.empty())) return;
  std::error_code error;
  for (const std::string& name : written_) std::filesystem::remove(path_of(name), error);
  remove_record();
  if (made_) std::filesystem::remove(path_, error);  // only where it is empty
}

void OutputFolder::check_room(std::uint64_t bytes) const { check_free_space(path_, bytes); }

}  // namespace octavo
