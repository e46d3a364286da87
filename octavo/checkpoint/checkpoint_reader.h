// CheckpointReader: a model on disk, open for reading. One safetensors file, a folder with one file
// or with shards and an index (weight map), or a GGUF file. Opening reads all headers and checks
// them against the index; after that any byte range of any tensor can be read from any thread.
// Files are not memory-mapped, and only headers are kept in memory.
//
// A GGUF file of an architecture that octavo knows reads as the model's folder would: tensors have
// their names there, and their blocks are decoded to f32 as they are read; config and tokenizer are
// made of the metadata (docs/numerics/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/safetensors/file_reader.h"

namespace octavo {

class Json;
namespace gguf {
class File;
}

// What a caller does with the files of a folder besides weights, index and config. A folder is
// untrusted, and a symbolic link in it may lead to a private file.
enum class OtherFiles : std::uint8_t {
  unused,  // nothing; symbolic links are followed wherever they lead, as only this process reads
  // They are copied. A link out of the folder is an error, of weights and config too; for a
  // snapshot in a Hugging Face cache, a link out of the model's folder there (models--X).
  copied,
  copied_with_links,  // copied, and links may lead anywhere
};
[[nodiscard]] constexpr OtherFiles copied_files(bool follow_links) {
  return follow_links ? OtherFiles::copied_with_links : OtherFiles::copied;
}

// The folder in an output folder with the headers of shards of its source that were deleted.
inline constexpr std::string_view kDeletedShards = "octavo-source";

struct StoredTensor {
  std::size_t file = 0;  // index into CheckpointReader::files()
  const safetensors::TensorEntry* entry = nullptr;

  [[nodiscard]] const std::string& name() const { return entry->name; }
  [[nodiscard]] std::uint64_t nbytes() const { return entry->nbytes(); }
};

class OCTAVO_API CheckpointReader {
 public:
  // Throws Error(io) when a file cannot be read or is missing (a shard that the index names),
  // Error(invalid_argument) when headers or index are wrong: a tensor in two shards, an index that
  // contradicts the headers, a shard name with a folder in it, a folder with several files and no
  // index, a GGUF file that is damaged. FileError, before anything is read, for what cannot be
  // copied although it should be: broken links and loops, links out of the folder.
  // `deleted_shards`: OUT/octavo-source, with headers of shards that may be deleted.
  explicit CheckpointReader(const std::string& path, OtherFiles others = OtherFiles::unused,
                            std::string deleted_shards = {});

  // For the library: this checkpoint with other tensors, which `files` hold, one for each of its
  // files; with this config and no hf_quant_config.
  [[nodiscard]] CheckpointReader with_tensors(
      std::vector<std::shared_ptr<const safetensors::TensorSource>> files, Json config,
      std::vector<std::string> notes) const;

  // Does it read as other tensors than its files have?
  [[nodiscard]] bool is_decoded() const { return bytes_in_files_ > 0; }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_folder() const { return is_folder_; }
  // Shards sorted by name; for a single-file checkpoint that file alone.
  [[nodiscard]] const std::vector<safetensors::FileReader>& files() const { return files_; }
  // The index's name, "model.safetensors.index.json"; empty where there is none.
  [[nodiscard]] const std::string& index_name() const { return index_name_; }
  // Other files of the folder, to be copied: tokenizers and the like, those of subfolders as
  // "1_Pooling/config.json". Excludes the files that the members below hold, weights in other file
  // formats, pipes, sockets and devices, and nested models; all but the first with a note.
  [[nodiscard]] const std::vector<std::string>& other_files() const { return other_files_; }
  // A GGUF file: its other files are made of its metadata.
  [[nodiscard]] bool is_gguf() const { return gguf_ != nullptr; }
  [[nodiscard]] std::string made_file(const std::string& name) const;  // of a GGUF file
  // For the library: the GGUF file; null for safetensors.
  [[nodiscard]] const gguf::File* gguf_file() const { return gguf_.get(); }
  // Irregularities that are no errors: a wrong total_size, weight files that no index names.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  // Sorted names of .safetensors files in the folder that are neither the model's file nor in its
  // index.
  [[nodiscard]] const std::vector<std::string>& unread_files() const { return unread_files_; }
  // Every tensor, sorted by name.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Sorted names of tensors that the files hold and the index's weight map omits.
  [[nodiscard]] const std::vector<std::string>& not_in_index() const { return not_in_index_; }
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;
  // config.json as JSON text; "null" where there is none.
  [[nodiscard]] std::string config_text() const;
  // For the library, whose class Json is internal: config.json, and ModelOpt's
  // hf_quant_config.json; null where there is none.
  [[nodiscard]] const Json& config() const { return *config_; }
  [[nodiscard]] const Json& hf_quant_config() const { return *hf_quant_config_; }
  // The type and the bytes that a tensor has in its file: "Q4_K", where it is read as f32.
  [[nodiscard]] std::string_view type_in_file(const StoredTensor& tensor) const;
  [[nodiscard]] std::uint64_t bytes_in_file(const StoredTensor& tensor) const;
  [[nodiscard]] bool is_in_blocks(const StoredTensor& tensor) const;  // of a GGUF file, quantized
  [[nodiscard]] std::uint64_t nbytes() const;  // of all tensors, in their files

  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> into) const;
  // The files that a tensor is read from, as indices into files(): several where it is decoded.
  [[nodiscard]] std::vector<std::size_t> shards_of(const StoredTensor& tensor) const;
  [[nodiscard]] const std::string& deleted_shards() const { return deleted_shards_; }
  // Row blocks that begin at multiples of this are read fastest.
  [[nodiscard]] std::int64_t rows_together(const StoredTensor& tensor) const;

 private:
  CheckpointReader() = default;
  std::string path_;
  bool is_folder_ = false;
  std::vector<safetensors::FileReader> files_;
  void open_folder(const class FolderGuard& guard);
  void open_gguf();
  void take_subfolders(const struct ModelFolder& folder);
  void take_tensors(const struct ShardIndex* index);

  std::string index_name_, deleted_shards_;
  std::vector<std::string> other_files_, notes_, not_in_index_, unread_files_;
  std::vector<StoredTensor> tensors_;
  std::shared_ptr<const Json> config_, hf_quant_config_;
  std::shared_ptr<const gguf::File> gguf_;  // null for safetensors
  std::uint64_t bytes_in_files_ = 0;        // where tensors are not what the files hold; else 0
};

}  // namespace octavo
