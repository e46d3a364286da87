// The output folder of a checkpoint: created or checked, locked, and with a progress record of
// finished files, so that a killed call can be resumed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/hash/text_hash_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/pipeline/output/shard_folder_internal.h"

namespace octavo {

inline constexpr std::string_view kProgressFile = "octavo-progress.json";
// The folder in it that several processes keep their claims and records in.
inline constexpr std::string_view kSharedWork = "octavo-work";

// What must be equal for an earlier call's files to be reusable.
struct WorkIdentity {
  std::string options;  // plan options as text
  std::string source;   // source_fingerprint(): of headers alone, which a copy has, too
  std::string times;    // source_identity(): of headers and of sizes and times of the files
  // shard_samples(), asked for when the record is made, and by a call that goes on where the times
  // are others. Of a shard that was deleted (option delete_source) it is empty.
  std::function<std::vector<std::string>()> samples;
};

class WholeFile;

// Locks a folder for the object's lifetime. Throws Error(io) where another process holds the lock.
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

// Throws Error(io) that names a symbolic link in the folder, if there is one.
void refuse_links(const std::string& folder);

class OutputFolder : public ShardFolder {
 public:
  // Throws Error with a fix: the folder is the source, is not empty, is in use, or (resume) holds
  // files of other work.
  OutputFolder(const std::string& path, const CheckpointReader& source,
               const WorkIdentity& identity, bool resume);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  [[nodiscard]] std::string path_of(std::string_view name) const override;
  // Null also for a file that differs from what that call wrote: the whole file is read and its
  // checksum compared. Call before the first file is noted; the reference is valid until then.
  [[nodiscard]] const Json& finished(const std::string& name) override;
  void note_finished(const std::string& name, std::uint64_t sum, std::size_t count,
                     const std::function<Json(std::size_t)>& tensor) override;
  void note_written(const std::string& name, std::uint64_t sum) override;
  // source_sample() of when the work began.
  [[nodiscard]] std::string sample() const;
  // Have files of the source other sizes or times than when the work began? By the headers and a
  // sample they are the same, so that it goes on, but all values were not compared.
  [[nodiscard]] bool has_touched_source() const { return touched_; }
  // Checksums of the written files, as hexadecimal digits.
  [[nodiscard]] const std::map<std::string, std::string>& sums() const { return sums_; }
  void remove_record();
  // After an error: keeps finished work for a later resume, if there is any and `useless` is false;
  // otherwise removes what this call made.
  void abandon(bool useless) noexcept;
  void check_room(std::uint64_t bytes) const override;

 private:
  void make_or_check(const CheckpointReader& source, bool resume);
  void load_record(const WorkIdentity& identity);
  // Writes the record from scratch, or with one more file, which `put_more` writes.
  using Put = std::function<void(std::string_view)>;
  void write_record(const std::function<void(const Put&)>& put_more = {});
  void copy_record(WholeFile& to) const;
  void remove_leftovers() const;

  std::string path_;
  FolderLock lock_;
  bool has_record_ = false, made_ = false, touched_ = false;
  std::vector<std::string> written_;
  std::map<std::string, std::string> sums_;
  Json record_;                     // identity of the work
  Json files_ = Json::object();     // records of an earlier call's finished files
  std::uint64_t record_bytes_ = 0;  // of the record that this call wrote, without its last braces
  int record_files_ = 0;
};

// Does a file's data have this checksum? Read from the storage, as far as a process can ask for
// that (drop_cached in base/file/cached_pages_internal.h).
[[nodiscard]] bool has_checksum(const std::string& path, std::string_view sum);

// A hash of the headers and of the names, sizes and times of the source's files: the same while
// nothing has written to them.
[[nodiscard]] std::string source_identity(const CheckpointReader& source);

// ", or remove the folder", for messages; of a folder for which shards of the source were deleted,
// that it must stay: nothing else has their values.
[[nodiscard]] std::string or_remove(const std::string& folder);

}  // namespace octavo
