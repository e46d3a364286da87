// The index of a checkpoint in several files, model.safetensors.index.json: which tensor is in
// which file. It comes from outside, so nothing in it is believed: names of files are plain names
// of the same folder or an error, and what it says of tensors is held against the files' own
// headers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/macros.h"

namespace octavo {

struct ShardIndex {
  std::vector<std::string> files;                            // sorted
  std::vector<std::pair<std::string, std::size_t>> tensors;  // name, index into files; sorted
  std::int64_t total_size = -1;                              // of all tensors; -1: not said

  bool operator==(const ShardIndex&) const = default;
};

// Throws Error(invalid_argument) that names `file` and what is wrong.
[[nodiscard]] OCTAVO_API ShardIndex parse_shard_index(std::string_view text, std::string_view file);

// Throws Error(invalid_argument) where the index leaves shards out: a number that its own names
// imply
// ("model-00001-of-00003.safetensors" alone implies two others), or a file of the folder that is
// numbered like them. A loader that follows such an index runs with weights that nobody wrote.
OCTAVO_API void check_no_shard_is_left_out(const std::vector<std::string>& used,
                                           const std::vector<std::string>& in_folder,
                                           std::string_view index);

// As transformers and vLLM want it.
[[nodiscard]] OCTAVO_API std::string write_shard_index(const ShardIndex& index);
// The same in pieces, of names that are elsewhere: in their order, each with its number of `files`.
OCTAVO_API void write_shard_index(
    const std::vector<std::string>& files,
    const std::vector<std::pair<std::string_view, std::size_t>>& tensors, std::int64_t total_size,
    const std::function<void(std::string_view)>& put);

// Is this the name of a file in a folder: no separator, no NUL, not "." or ".."?
[[nodiscard]] OCTAVO_API bool is_plain_file_name(std::string_view name);

}  // namespace octavo
