// Blocks of 32 elements: a scale (and for some an offset), then codes. Of two nibbles in a byte the
// low one is element i, the high one element i + 16.
#include "octavo/checkpoint/gguf/block_decode.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"

namespace octavo::gguf {
namespace {

constexpr int kElements = 32, kHalf = kElements / 2;

unsigned byte_at(const std::byte* bytes, int index) {
  return std::to_integer<unsigned>(bytes[index]);
}

int low(const std::byte* codes, int i) { return static_cast<int>(byte_at(codes, i) & 0xF); }
int high(const std::byte* codes, int i) { return static_cast<int>(byte_at(codes, i) >> 4); }

// The fifth bits of 32 codes, the first in the lowest bit.
std::uint32_t fifth_bits(const std::byte* bytes) {
  return byte_at(bytes, 0) | byte_at(bytes, 1) << 8 | byte_at(bytes, 2) << 16 |
         byte_at(bytes, 3) << 24;
}

void decode_q4_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  const std::byte* const codes = block + 2;
  for (int i = 0; i < kHalf; ++i) {
    values[i] = scale * static_cast<float>(low(codes, i) - 8);
    values[i + kHalf] = scale * static_cast<float>(high(codes, i) - 8);
  }
}

void decode_q4_1(const std::byte* block, float* values) {
  const float scale = half_at(block), least = half_at(block + 2);
  const std::byte* const codes = block + 4;
  for (int i = 0; i < kHalf; ++i) {
    values[i] = scale * static_cast<float>(low(codes, i)) + least;
    values[i + kHalf] = scale * static_cast<float>(high(codes, i)) + least;
  }
}

// Codes of five bits: the fifth ones are apart.
template <typename Each>
void for_five_bits(const std::byte* bits, const std::byte* codes, const Each& each) {
  const std::uint32_t fifth = fifth_bits(bits);
  for (int i = 0; i < kHalf; ++i) {
    each(i, low(codes, i) | static_cast<int>(fifth >> i & 1) << 4);
    each(i + kHalf, high(codes, i) | static_cast<int>(fifth >> (i + kHalf) & 1) << 4);
  }
}

void decode_q5_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for_five_bits(block + 2, block + 6,
                [&](int i, int code) { values[i] = scale * static_cast<float>(code - 16); });
}

void decode_q5_1(const std::byte* block, float* values) {
  const float scale = half_at(block), least = half_at(block + 2);
  for_five_bits(block + 4, block + 8,
                [&](int i, int code) { values[i] = scale * static_cast<float>(code) + least; });
}

void decode_q8_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < kElements; ++i)
    values[i] = static_cast<float>(static_cast<std::int8_t>(byte_at(block, 2 + i))) * scale;
}

// E2M1 elements times two are integers, and the power of two of the block is halved for it. Code 8,
// minus zero in OCP's MXFP4, is zero here.
void decode_mxfp4(const std::byte* block, float* values) {
  constexpr std::array<float, 16> kTwice{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  // 2^(e - 128): for e below 2 subnormal. 255, OCP's NaN, is read as a number by every reader of
  // GGUF; so it is here.
  const unsigned exponent = byte_at(block, 0);
  const float scale =
      std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23);
  for (int i = 0; i < kHalf; ++i) {
    values[i] = scale * kTwice[static_cast<std::size_t>(low(block + 1, i))];
    values[i + kHalf] = scale * kTwice[static_cast<std::size_t>(high(block + 1, i))];
  }
}

struct Decoder {
  std::string_view type;
  void (*decode)(const std::byte*, float*);
};
constexpr std::array<Decoder, 11> kDecoders{{{"Q4_0", decode_q4_0},
                                             {"Q4_1", decode_q4_1},
                                             {"Q5_0", decode_q5_0},
                                             {"Q5_1", decode_q5_1},
                                             {"Q8_0", decode_q8_0},
                                             {"MXFP4", decode_mxfp4},
                                             {"Q2_K", decode_q2_k},
                                             {"Q3_K", decode_q3_k},
                                             {"Q4_K", decode_q4_k},
                                             {"Q5_K", decode_q5_k},
                                             {"Q6_K", decode_q6_k}}};

}  // namespace

float half_at(const std::byte* bytes) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  if constexpr (std::endian::native == std::endian::big) bits = __builtin_bswap16(bits);
  // Inf and NaN keep their bits: a NaN's payload is moved up, as processors do.
  if ((bits & 0x7C00) == 0x7C00)
    return std::bit_cast<float>((bits & 0x8000U) << 16 | 0x7F800000U | (bits & 0x3FFU) << 13);
  return static_cast<float>(decode(f16_format, bits));
}

void decode_blocks(const TensorType& type, std::span<const std::byte> blocks,
                   std::span<float> values) {
  const auto* found = kDecoders.begin();
  while (found != kDecoders.end() && found->type != type.name) ++found;
  assert(found != kDecoders.end());
  const std::size_t count = blocks.size() / type.bytes;
  assert(values.size() == count * type.elements);
  for (std::size_t i = 0; i < count; ++i)
    found->decode(blocks.data() + i * type.bytes, values.data() + i * type.elements);
}

}  // namespace octavo::gguf
