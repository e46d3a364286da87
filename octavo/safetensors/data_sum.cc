#include "octavo/safetensors/data_sum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace octavo::safetensors {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);

// A byte is the word that has zeros besides it: the sum is linear.
std::uint64_t byte_sum(std::uint64_t offset, std::byte byte) {
  const std::uint64_t word = std::to_integer<std::uint64_t>(byte) << (8 * (offset % kWord));
  return (2 * (offset / kWord) + 1) * word;
}

}  // namespace

std::uint64_t piece_sum(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  while (!bytes.empty() && offset % kWord != 0) {
    sum += byte_sum(offset++, bytes.front());
    bytes = bytes.subspan(1);
  }
  // Indices within a block are small, so that one multiplication of 32 by 32 bits does for a word.
  constexpr std::size_t kBlock = 4096;
  while (bytes.size() >= kWord) {
    const std::size_t words = std::min(bytes.size() / kWord, kBlock);
    std::uint64_t plain = 0, weighted = 0;
    for (std::uint32_t i = 0; i < words; ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, bytes.data() + i * kWord, kWord);
      if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap32(word);
      plain += word;
      weighted += static_cast<std::uint64_t>(word) * i;
    }
    sum += (2 * (offset / kWord) + 1) * plain + 2 * weighted;
    offset += words * kWord;
    bytes = bytes.subspan(words * kWord);
  }
  for (const std::byte byte : bytes) sum += byte_sum(offset++, byte);
  return sum;
}

std::uint64_t data_sum(const FileReader& file) {
  constexpr std::uint64_t kWindow = 1U << 20;
  std::vector<std::byte> window(std::min(kWindow, file.header().data_bytes));
  std::uint64_t sum = 0;
  for (const TensorEntry& tensor : file.header().tensors)
    for (std::uint64_t at = 0; at < tensor.nbytes(); at += window.size()) {
      const auto piece =
          std::span(window).first(std::min<std::uint64_t>(window.size(), tensor.nbytes() - at));
      file.read(tensor, at, piece);
      sum += piece_sum(tensor.begin + at, piece);
    }
  return sum;
}

}  // namespace octavo::safetensors
