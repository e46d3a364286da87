// The folder that a checkpoint is written into: made or found fit, locked, and with a record of
// what is finished, so that a call that was killed can be taken up again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

inline constexpr std::string_view kProgressFile = "octavo-progress.json";

// What an earlier call must have had in common for its files to be the same.
struct WorkIdentity {
  std::string options;  // of the plan, as text
  std::string source;   // names, sizes and times of the files, as a hash
};

class WholeFile;

// Locks a folder until it is gone. Throws Error(io) where another process has it.
class FolderLock {
 public:
  FolderLock() = default;
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  void take(const std::string& folder);

 private:
  int descriptor_ = -1;
};

// Throws Error(io) that names a link in the folder, if there is one.
void refuse_links(const std::string& folder);

class OutputFolder {
 public:
  // Throws Error: the folder is the source, is not empty, is in use, or (resume) holds files of
  // other work; with what to do about it.
  OutputFolder(const std::string& path, const CheckpointReader& source,
               const WorkIdentity& identity, bool resume);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  [[nodiscard]] std::string path_of(std::string_view name) const;
  // What an earlier call kept of this file; null when it has to be written, as it is not there or
  // not what that call wrote: all of it is read and held against its sum. To be asked before the
  // first file is noted, until when it stays.
  [[nodiscard]] const Json& finished(const std::string& name);
  // Notes that a file is there under its name, its FileWriter::written_checksum(), and what is to
  // be kept of each of its tensors: `tensor(i)` for all i below `count`. (One at a time: together
  // they would be the largest thing in memory.)
  void note_finished(const std::string& name, std::uint64_t sum, std::size_t count,
                     const std::function<Json(std::size_t)>& tensor);
  // Notes that a file is there, which a later call is to write again.
  void note_written(const std::string& name, std::uint64_t sum);
  // Of every file that is there, as hexadecimal digits.
  [[nodiscard]] const std::map<std::string, std::string>& sums() const { return sums_; }
  void remove_record();
  // After an error. Work that was begun is kept for a later call, if there is any and `useless`
  // does not say that none can use it; what this call made is removed otherwise.
  void abandon(bool useless) noexcept;
  // Throws Error(io) unless the disk has room for so much.
  void check_room(std::uint64_t bytes) const;

 private:
  void make_or_check(const CheckpointReader& source, bool resume);
  void load_record(const WorkIdentity& identity);
  // The record anew, or with one more file, which `put_more` writes.
  using Put = std::function<void(std::string_view)>;
  void write_record(const std::function<void(const Put&)>& put_more = {});
  void copy_record(WholeFile& to) const;
  void remove_leftovers() const;

  std::string path_;
  FolderLock lock_;
  bool has_record_ = false, made_ = false;
  std::vector<std::string> written_;
  std::map<std::string, std::string> sums_;
  Json record_;                     // of what work this is
  Json files_ = Json::object();     // what an earlier call kept of each finished one
  std::uint64_t record_bytes_ = 0;  // of the record that this call wrote, without its last braces
  int record_files_ = 0;
};

// Are the bytes of a file behind its header those that were written?
[[nodiscard]] bool has_checksum(const std::string& path, std::string_view sum);

// The same name for the same files: what a resumed call compares.
[[nodiscard]] std::string source_identity(const CheckpointReader& source);

[[nodiscard]] std::uint64_t text_hash(std::string_view text, std::uint64_t seed = 0);
[[nodiscard]] std::string hex_of(std::uint64_t value);

}  // namespace octavo
