// Deletes shards of the source while a folder is written, for people short of disk (option
// delete_source): each when every output file that it is needed for is finished, and was read back
// and found to be what was written. The last ones go when the folder is complete.
//
// A shard may be the only copy of its values. So it goes only while it is the file that was read,
// under its one name, and while all that was made of it is what was read back. One that may not go
// any more, or that cannot be deleted, stays, and the work goes on.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <vector>

#include "octavo/pipeline/plan/quantize_options.h"

namespace octavo {

class SourceDeletion {
 public:
  // Throws Error with the reason where nothing may be deleted: no loader would load the output,
  // shards are links or have other names, or lie where this process may not delete.
  SourceDeletion(const CheckpointReader& source, const QuantizePlan& plan, std::string out);

  // `path` has this header (content_state_of()) and checksum if it can be read back. Throws
  // Error(io) where it cannot.
  void file_is_finished(std::size_t file, const std::string& path, const std::string& state,
                        const std::string& sum);
  // By an earlier call; it was read back.
  void file_was_finished(std::size_t file, const std::string& path);
  [[nodiscard]] bool has_deleted() const;
  // Before the folder is said to be complete: headers of all shards that are left.
  void keep_headers();

 private:
  struct Finished {
    std::string path{};  // empty: it is not
    struct stat status {};
  };
  [[nodiscard]] bool may_go(std::size_t shard) const;
  void check_written(std::size_t shard) const;
  void remove(std::size_t shard);

  const CheckpointReader& source_;
  std::string out_;
  std::vector<std::vector<std::size_t>> needed_for_;  // by shard: output files
  std::vector<struct stat> opened_;                   // by shard, where it is there
  std::vector<bool> deleted_;
  std::vector<Finished> finished_;
};

// For a complete folder: deletes what is left of the source's weights, and then the headers that
// were kept. A shard that is not the one whose header was kept stays, and the headers with it, and
// so do all where no loader of this target loads the folder; returns the names of those.
[[nodiscard]] std::vector<std::string> delete_kept_shards(const CheckpointReader& source,
                                                          const std::string& out, Dialect target);
// Of a complete folder that needs them no more.
void remove_kept_headers(const std::string& out);

// Throws Error(io) where a shard was deleted and a file that was made of it is not finished or not
// what it was: nothing can make it again. `finished` is by output file.
void check_deleted_shards(const CheckpointReader& source, const QuantizePlan& plan,
                          const std::vector<bool>& finished);

}  // namespace octavo
