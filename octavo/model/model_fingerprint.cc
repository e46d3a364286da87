#include <string_view>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/model/model_fingerprint_internal.h"

namespace octavo {
namespace {

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

}  // namespace

std::uint64_t model_fingerprint(const CheckpointReader& reader) {
  Fingerprint out;
  for (const StoredTensor& tensor : reader.tensors()) {
    out.add(tensor.name());
    out.add(static_cast<std::uint64_t>(tensor.entry->type));
    for (const std::uint64_t size : tensor.entry->shape) out.add(size);
    out.add(tensor.entry->shape.size());
  }
  out.add(reader.config_text());
  return out.value();
}

}  // namespace octavo
