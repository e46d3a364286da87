#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/json/json.h"
#include "octavo/base/text_hash_internal.h"

namespace octavo {
namespace {

constexpr std::uint64_t kSampled = 4096;

}  // namespace

std::string source_fingerprint(const CheckpointReader& source) {
  std::uint64_t hash = text_hash(source.config().dump(0));
  hash = text_hash(source.hf_quant_config().dump(0), hash);
  hash = text_hash(source.index_name(), hash);
  hash = text_hash(text(source.nbytes()), hash);  // of a quantized one, not those of its values
  for (const auto& file : source.files()) {
    // One file alone may have any name.
    if (source.is_folder())
      hash = text_hash(std::filesystem::path(file.path()).filename().string(), hash);
    for (const auto& tensor : file.header().tensors) {
      hash = text_hash(text(tensor.name, " ", tensor.begin, " ", tensor.end, " ",
                            safetensors::stored_name(tensor.type)),
                       hash);
      for (const std::uint64_t size : tensor.shape) hash = (hash ^ size) * 0x100000001B3ULL;
    }
  }
  return hex_of(hash);
}

std::string source_sample(const CheckpointReader& source) {
  std::vector<const StoredTensor*> largest(source.files().size(), nullptr);
  for (const StoredTensor& tensor : source.tensors()) {
    const StoredTensor*& most = largest[tensor.file];
    if (most == nullptr || tensor.nbytes() > most->nbytes()) most = &tensor;
  }
  std::uint64_t hash = 0;
  for (const StoredTensor* const tensor : largest) {
    if (tensor == nullptr) continue;
    std::string bytes(std::min(kSampled, tensor->nbytes()), '\0');
    source.read(*tensor, 0, std::as_writable_bytes(std::span<char>(bytes)));
    hash = text_hash(bytes, hash);
  }
  return hex_of(hash);
}

}  // namespace octavo
