#include "octavo/safetensors/data_checksum.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "octavo/base/hash/word_sum_internal.h"
#include "octavo/base/hexadecimal.h"

namespace octavo::safetensors {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);

// A byte counts as a word whose other bytes are zero: the checksum is linear.
std::uint64_t byte_sum(std::uint64_t offset, std::byte byte) {
  const std::uint64_t word = std::to_integer<std::uint64_t>(byte) << (8 * (offset % kWord));
  return (2 * (offset / kWord) + 1) * word;
}

}  // namespace

std::uint64_t piece_checksum(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  const auto take = [&](std::size_t count) {
    for (const std::byte byte : bytes.first(count)) sum += byte_sum(offset++, byte);
    bytes = bytes.subspan(count);
  };
  take(std::min<std::size_t>(bytes.size(), (kWord - offset % kWord) % kWord));
  if constexpr (std::endian::native == std::endian::little) {
    const std::size_t steps = bytes.size() / kWordStep;
    sum += word_steps_sum(offset / kWord, bytes.data(), steps);
    offset += steps * kWordStep;
    bytes = bytes.subspan(steps * kWordStep);
  }
  take(bytes.size());
  return sum;
}

std::uint64_t data_checksum(const FileReader& file) {
  constexpr std::uint64_t kWindow = 1U << 20;
  std::vector<std::byte> window(std::min(kWindow, file.header().data_bytes));
  std::uint64_t sum = 0;
  for (const TensorEntry& tensor : file.header().tensors)
    for (std::uint64_t at = 0; at < tensor.nbytes(); at += window.size()) {
      const auto piece =
          std::span(window).first(std::min<std::uint64_t>(window.size(), tensor.nbytes() - at));
      file.read(tensor, at, piece);
      sum += piece_checksum(tensor.begin + at, piece);
    }
  return sum;
}

bool has_checksum(const FileReader& file, std::string_view digits) {
  const std::optional<std::uint64_t> sum = parse_hex(digits);
  return sum && data_checksum(file) == *sum;
}

}  // namespace octavo::safetensors
