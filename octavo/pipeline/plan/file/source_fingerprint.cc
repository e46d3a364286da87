#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <span>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/hash/row_hash_internal.h"
#include "octavo/base/hash/text_hash_internal.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/base/json/json.h"
#include "octavo/base/thread_pool.h"

namespace octavo {
namespace {

// Bytes of a place, and places: of a tensor and of a file.
constexpr std::uint64_t kPlace = 1024, kFewestOfATensor = 3, kMostOfATensor = 16;
constexpr std::uint64_t kUsualPlaces = 2048, kMostPlaces = 16384;

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

namespace {

// How many places of a file are looked at: more of each tensor where there are few, three of each
// where there are some thousands, and never more than fit into a moment of network storage.
std::uint64_t places_of(std::uint64_t tensors) {
  return std::min(
      {kMostPlaces, kMostOfATensor * tensors, std::max(kUsualPlaces, kFewestOfATensor * tensors)});
}

// Of a tensor with so many places: from its first bytes to its last, at even distances.
template <typename Look>
void each_place(std::uint64_t bytes, std::uint64_t places, const Look& look) {
  if (places == 0 || bytes == 0) return;
  if (bytes <= places * kPlace) return look(std::uint64_t{0}, bytes);
  const std::uint64_t last = bytes - kPlace;
  if (places == 1) return look(last / 2, kPlace);
  for (std::uint64_t i = 0; i < places; ++i) look(last * i / (places - 1), kPlace);
}

std::uint64_t sample_of(const safetensors::FileReader& file) {
  const auto& tensors = file.header().tensors;
  const std::uint64_t places = places_of(tensors.size());
  std::vector<std::byte> window(kMostOfATensor * kPlace);
  std::uint64_t hash = 0, done = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t before = done;
    done = (i + 1) * places / tensors.size();  // tensors share the file's places evenly
    each_place(tensors[i].nbytes(), done - before, [&](std::uint64_t offset, std::uint64_t bytes) {
      const std::span<std::byte> piece = std::span(window).first(bytes);
      file.read(tensors[i], offset, piece);
      hash = content_hash(piece, static_cast<std::int64_t>(bytes), 0) + text_hash(hex_of(hash));
    });
  }
  return hash;
}

}  // namespace

std::vector<std::string> shard_samples(const CheckpointReader& source, int threads) {
  // Values that are decoded as they are read take longer than the bytes that they come from.
  const bool raw = source.is_decoded() && !source.is_gguf();
  std::vector<std::string> of_file(source.files().size());
  std::vector<std::exception_ptr> failed(of_file.size());
  parallel_for(static_cast<int>(of_file.size()), threads, [&](int part) {
    const auto i = static_cast<std::size_t>(part);
    const safetensors::FileReader& file = source.files()[i];
    std::error_code ignored;
    if (!source.deleted_shards().empty() && !std::filesystem::exists(file.path(), ignored)) return;
    try {
      of_file[i] = hex_of(raw ? sample_of(safetensors::FileReader(file.path())) : sample_of(file));
    } catch (...) {
      failed[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& one : failed)
    if (one) std::rethrow_exception(one);
  return of_file;
}

std::string source_sample_of(const std::string& fingerprint,
                             const std::vector<std::string>& shards) {
  std::uint64_t hash = text_hash(fingerprint);
  for (const std::string& one : shards) hash = text_hash(one, hash);
  return hex_of(hash);
}

std::string source_sample(const CheckpointReader& source, int threads) {
  return source_sample_of(source_fingerprint(source), shard_samples(source, threads));
}

}  // namespace octavo
