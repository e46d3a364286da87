#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/row_hash_internal.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/model/model_fingerprint_internal.h"

namespace octavo {
namespace {

// Bytes of a place, and how many places a tensor and a model have.
constexpr std::uint64_t kPlace = 512, kMostOfATensor = 8, kMostPlaces = 16384;

// FNV-1a.
class Fingerprint {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) {
      hash_ ^= static_cast<unsigned char>(c);
      hash_ *= 0x100000001B3U;
    }
  }
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i, number >>= 8) {
      const char c = static_cast<char>(number & 0xFFU);
      add(std::string_view(&c, 1));
    }
  }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

// At even distances from the first bytes to the last; a small tensor is read whole.
void add_places(const CheckpointReader& reader, const StoredTensor& tensor, std::uint64_t places,
                Fingerprint& out) {
  const std::uint64_t bytes = tensor.nbytes(), window = std::min(bytes, kPlace);
  places = std::min(places, window == 0 ? 0 : (bytes + kPlace - 1) / kPlace);
  std::array<std::byte, kPlace> buffer{};
  for (std::uint64_t i = 0; i < places; ++i) {
    const std::uint64_t last = bytes - window;
    const std::span<std::byte> piece = std::span(buffer).first(window);
    reader.read(tensor, places == 1 ? last / 2 : last * i / (places - 1), piece);
    out.add(content_hash(piece, static_cast<std::int64_t>(window), 0));
  }
}

}  // namespace

std::uint64_t model_fingerprint(const CheckpointReader& reader) {
  Fingerprint out;
  const std::uint64_t each = std::clamp<std::uint64_t>(
      kMostPlaces / std::max<std::size_t>(reader.tensors().size(), 1), 1, kMostOfATensor);
  for (const StoredTensor& tensor : reader.tensors()) {
    out.add(tensor.name());
    out.add(static_cast<std::uint64_t>(tensor.entry->type));
    for (const std::uint64_t size : tensor.entry->shape) out.add(size);
    out.add(tensor.entry->shape.size());
    try {
      add_places(reader, tensor, each, out);
    } catch (const Error& error) {
      // Blocks of a GGUF file that octavo does not decode: their type is in the number.
      if (error.code() != ErrorCode::unsupported) throw;
    }
  }
  out.add(reader.config_text());
  return out.value();
}

}  // namespace octavo
