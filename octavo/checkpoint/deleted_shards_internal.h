// Shards of a source that were deleted when all that was made of them was finished (option
// delete_source). Their headers stay in a folder of the output, so that a killed call can plan
// again: sparse files of the shards' names, sizes and times, with the header and the tensors of a
// kilobyte or less, which planning reads.
#pragma once

#include <string>

#include "octavo/safetensors/file_reader.h"

struct stat;

namespace octavo {

// Writes the header of a shard into `folder`, flushed to disk.
void keep_shard_header(const safetensors::FileReader& shard, const std::string& folder);

// The shard at `path`, of which `folder` has the header. Reading larger tensors is an Error.
[[nodiscard]] safetensors::FileReader open_deleted_shard(const std::string& path,
                                                         const std::string& folder);

// Is what lies at `path` the shard whose header is kept: of its size, time and header?
[[nodiscard]] bool is_kept_shard(const std::string& path, const std::string& folder);

// The name of the one shard that is kept; empty where there are none or several.
[[nodiscard]] std::string only_deleted_shard(const std::string& folder);

// stat() of a shard that may be deleted; `folder` may be empty.
[[nodiscard]] bool stat_shard(const std::string& path, const std::string& folder,
                              struct stat& status);

}  // namespace octavo
