#include "octavo/safetensors/data_checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace octavo::safetensors {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);

// A byte counts as a word whose other bytes are zero: the checksum is linear.
std::uint64_t byte_sum(std::uint64_t offset, std::byte byte) {
  const std::uint64_t word = std::to_integer<std::uint64_t>(byte) << (8 * (offset % kWord));
  return (2 * (offset / kWord) + 1) * word;
}

// Two words in each of eight 64-bit lanes (GCC and Clang vector extensions, for every CPU).
using Lanes = std::uint64_t __attribute__((vector_size(16)));
constexpr std::size_t kVectors = 4, kStep = kVectors * sizeof(Lanes), kStepWords = kStep / kWord;

// The checksum of whole steps of words from word `first` on, from sums of lanes and sums of those
// sums: with n steps, `after` contains word s of a lane n - s times, so that the sum of s times
// word s is n times `plain` minus `after`. [0] sums both words of a lane as one 64-bit number, [1]
// the upper word; the lower word is the difference.
std::uint64_t steps_sum(std::uint64_t first, const std::byte* bytes, std::size_t steps) {
  Lanes plain[kVectors][2] = {}, after[kVectors][2] = {};
  for (std::size_t step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < kVectors; ++i) {
      Lanes words;
      std::memcpy(&words, bytes + step * kStep + i * sizeof words, sizeof words);
      plain[i][0] += words;
      plain[i][1] += words >> 32;
      after[i][0] += plain[i][0];
      after[i][1] += plain[i][1];
    }
  std::uint64_t sum = 0;
  for (std::size_t word = 0; word < kStepWords; ++word) {
    const std::size_t vector = word / 4, lane = word % 4 / 2;
    const auto of_word = [&](const Lanes(&sums)[2]) {
      return word % 2 == 1 ? sums[1][lane] : sums[0][lane] - (sums[1][lane] << 32);
    };
    const std::uint64_t once = of_word(plain[vector]);
    sum +=
        (2 * (first + word) + 1) * once + 2 * kStepWords * (steps * once - of_word(after[vector]));
  }
  return sum;
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
    const std::size_t steps = bytes.size() / kStep;
    sum += steps_sum(offset / kWord, bytes.data(), steps);
    offset += steps * kStep;
    bytes = bytes.subspan(steps * kStep);
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

}  // namespace octavo::safetensors
