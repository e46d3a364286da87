// The index of a sharded checkpoint, model.safetensors.index.json: the weight map from tensors to
// shards, parsed and written. The index is untrusted: file names must be plain names in the same
// folder, and its claims about tensors are checked against the shards' own headers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo {

struct ShardIndex {
  std::vector<std::string> files;                            // sorted
  std::vector<std::pair<std::string, std::size_t>> tensors;  // name, index into files; sorted
  std::int64_t total_size = -1;                              // bytes of all tensors; -1: absent

  bool operator==(const ShardIndex&) const = default;
};

// Throws Error(invalid_argument) that names `file` and what is wrong.
[[nodiscard]] ShardIndex parse_shard_index(std::string_view text, std::string_view file);

// Throws Error(invalid_argument) where the index omits shards: a number that its own names imply
// ("model-00001-of-00003.safetensors" alone implies two others), or a file of the folder with the
// same numbering. A loader that follows such an index runs with uninitialized weights.
void check_no_shard_is_left_out(const std::vector<std::string>& used,
                                const std::vector<std::string>& in_folder, std::string_view index);

// In the format of transformers and vLLM.
[[nodiscard]] std::string write_shard_index(const ShardIndex& index);
// The same written piecewise, for names that are stored elsewhere: in their order, each with its
// index into `files`.
void write_shard_index(const std::vector<std::string>& files,
                       const std::vector<std::pair<std::string_view, std::size_t>>& tensors,
                       std::int64_t total_size, const std::function<void(std::string_view)>& put);

// True for the name of a file in a folder: no separator, no NUL, not "." or "..".
[[nodiscard]] bool is_plain_file_name(std::string_view name);

}  // namespace octavo
