// File: a GGUF model, read as the safetensors checkpoint that it would be: tensors under Hugging
// Face's names, rows of Q and K in its order, blocks decoded to f32 as they are read, and config
// and tokenizer as the files of a model's folder. Only the header is kept in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/gguf_header.h"
#include "octavo/safetensors/file_reader.h"

namespace octavo {
class Descriptor;
}

namespace octavo::gguf {

// Does the file begin as GGUF files do?
[[nodiscard]] bool is_gguf(const std::string& path);

class File : public safetensors::TensorSource {
 public:
  // Throws Error(io) when the file cannot be read, and what parse_header throws.
  explicit File(const std::string& path);
  ~File() override;

  [[nodiscard]] const safetensors::Header& header() const override { return header_; }
  void read(const safetensors::TensorEntry& tensor, std::uint64_t offset,
            std::span<std::byte> into) const override;

  // The tensor as the file has it.
  [[nodiscard]] const TensorInfo& stored(std::string_view name) const;

  [[nodiscard]] const Metadata& metadata() const { return gguf_.metadata; }
  // The values of kRopeFactors; empty where there is none.
  [[nodiscard]] std::vector<float> rope_factors() const;

  // config.json; null where octavo does not know the architecture.
  [[nodiscard]] const Json& config() const { return config_; }
  // Names of the other files of a model's folder that can be made of the metadata: the tokenizer's.
  [[nodiscard]] const std::vector<std::string>& made_files() const { return made_files_; }
  [[nodiscard]] std::string made_file(std::string_view name) const;
  // What is not as in the model's own folder.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  // A tensor in the order of header_.tensors.
  struct Source {
    std::size_t tensor = 0;       // of gguf_.tensors
    std::int64_t rope_heads = 0;  // rows are interleaved within heads; 0: they are not
  };

  void read_file(std::uint64_t position, std::span<std::byte> into) const;
  void read_elements(const TensorInfo& tensor, std::uint64_t first,
                     std::span<std::byte> into) const;
  void take_tensors();
  [[nodiscard]] const Source& source_of(std::string_view name) const;

  std::string path_;
  std::unique_ptr<const Descriptor> descriptor_;
  Header gguf_;
  safetensors::Header header_;
  std::vector<Source> sources_;
  Json config_;
  std::vector<std::string> made_files_, notes_;
};

// The row of a GGUF file that is row `row` of the model: llama.cpp stores the two halves of each
// head of Llama's Q and K interleaved, for its form of rotary embeddings. `rows` is a multiple of
// 2 heads.
[[nodiscard]] std::int64_t rope_row(std::int64_t row, std::int64_t rows, std::int64_t heads);

}  // namespace octavo::gguf
