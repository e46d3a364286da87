// A model on disk, open for reading: one safetensors file, or a folder with one or with shards and
// an index. All headers are read and held against the index when it is opened; after that any piece
// of any tensor can be read from any thread. Nothing is mapped, and nothing but headers is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/macros.h"
#include "octavo/safetensors/file_reader.h"

namespace octavo {

struct StoredTensor {
  std::size_t file = 0;  // of CheckpointReader::files()
  const safetensors::TensorEntry* entry = nullptr;

  [[nodiscard]] const std::string& name() const { return entry->name; }
  [[nodiscard]] std::uint64_t nbytes() const { return entry->nbytes(); }
};

// The content of a small file. Throws Error(io) when it cannot be read, Error(invalid_argument)
// when it is longer than `most`.
[[nodiscard]] OCTAVO_API std::string read_small_file(const std::string& path, std::uint64_t most);

class OCTAVO_API CheckpointReader {
 public:
  // Throws Error(io) when something cannot be read or is not there (a shard that the index names),
  // Error(invalid_argument) when headers or index are wrong: a tensor in two shards, an index that
  // lies, a shard name with a folder in it, a folder with several files and no index.
  explicit CheckpointReader(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_folder() const { return is_folder_; }
  // Shards in the order of their names; a file that is open is one of its own.
  [[nodiscard]] const std::vector<safetensors::FileReader>& files() const { return files_; }
  // The index's name, "model.safetensors.index.json"; empty where there is none.
  [[nodiscard]] const std::string& index_name() const { return index_name_; }
  // What else is in the folder: tokenizers and the like, to be copied, those of subfolders as
  // "1_Pooling/config.json". Neither what the members below have, nor weights in other files; links
  // in subfolders are left out, with a note.
  [[nodiscard]] const std::vector<std::string>& other_files() const { return other_files_; }
  // What is odd and no error: a wrong total_size, weights that no index names.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  // Names of .safetensors files beside the model's that neither it nor its index names, sorted.
  [[nodiscard]] const std::vector<std::string>& unread_files() const { return unread_files_; }
  // Every tensor, sorted by name.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Names of those that the index leaves out though its files have them, sorted.
  [[nodiscard]] const std::vector<std::string>& not_in_index() const { return not_in_index_; }
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;
  // config.json, and ModelOpt's hf_quant_config.json; null where there is none.
  [[nodiscard]] const Json& config() const { return config_; }
  [[nodiscard]] const Json& hf_quant_config() const { return hf_quant_config_; }
  [[nodiscard]] std::uint64_t nbytes() const;  // of all tensors

  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> into) const;

 private:
  std::string path_;
  bool is_folder_ = false;
  std::vector<safetensors::FileReader> files_;
  void open_folder();
  void find_in_subfolders();
  void take_tensors(const struct ShardIndex* index);

  std::string index_name_;
  std::vector<std::string> other_files_, notes_, not_in_index_, unread_files_;
  std::vector<StoredTensor> tensors_;
  Json config_, hf_quant_config_;
};

}  // namespace octavo
