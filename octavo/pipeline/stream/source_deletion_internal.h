// Deletes shards of the source while a folder is written, for people short of disk (option
// delete_source): each when every output file that it is needed for is finished, and was read back
// and found to be what was written. The last ones go when the folder is complete.
#pragma once

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

  // `path` has this checksum if it can be read back. Throws Error(io) where it cannot.
  void file_is_finished(std::size_t file, const std::string& path, const std::string& sum);
  void file_was_finished(std::size_t file);  // by an earlier call; it was read back
  [[nodiscard]] bool has_deleted() const;
  // What is left of the source's weights, and the headers that were kept.
  void folder_is_complete();

 private:
  void remove(std::size_t shard);

  const CheckpointReader& source_;
  std::string out_;
  std::vector<std::vector<std::size_t>> needed_for_;  // by shard: output files
  std::vector<bool> deleted_, finished_;
};

}  // namespace octavo
