// ShardFolder: the folder that a stream writes its files into, and that records which are finished.
// Of one process: output_folder_internal.h; of several: shared_folder_internal.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

class ShardFolder {
 public:
  virtual ~ShardFolder() = default;

  [[nodiscard]] virtual std::string path_of(std::string_view name) const = 0;
  // The record of this file from an earlier call; null when it has to be written.
  [[nodiscard]] virtual const Json& finished(const std::string& name) = 0;
  // Records a finished file, its FileWriter checksum, and data of each of its tensors: `tensor(i)`
  // for all i below `count`. (One at a time: together they would be the largest object in memory.)
  virtual void note_finished(const std::string& name, std::uint64_t sum, std::size_t count,
                             const std::function<Json(std::size_t)>& tensor) = 0;
  // Records a file that a later call is to write again.
  virtual void note_written(const std::string& name, std::uint64_t sum) = 0;
  // Throws Error(io) unless the disk has this much free space.
  virtual void check_room(std::uint64_t bytes) const = 0;
};

// Makes the folder where there is none, and returns whether it did. Throws Error(io) where it is
// the source's, or cannot be made.
bool make_output_folder(const std::string& path, const CheckpointReader& source);

// Throws Error(io) unless the disk of a folder has this much free space.
void check_free_space(const std::string& folder, std::uint64_t bytes);

// Identifies a finished file, against one that was changed, truncated or replaced since: its size,
// and a hash of its header; else "no file" or "damaged".
[[nodiscard]] std::string content_state(const std::string& path);
// The same of a file that has this header and all its data.
[[nodiscard]] std::string content_state_of(const safetensors::Header& header);

}  // namespace octavo
