// The K-quants: 256 elements, in groups of 16 or 32 whose scales are small integers times an f16 of
// the whole block. The bits of a code are apart, in planes.
#include <array>
#include <cstdint>

#include "octavo/checkpoint/gguf/block_decode.h"

namespace octavo::gguf {
namespace {

constexpr int kPlane = 32;  // codes whose bits lie side by side

int byte_at(const std::byte* bytes, int index) { return std::to_integer<int>(bytes[index]); }

// Scale and offset of eight groups, six bits each, in twelve bytes: of the first four groups the
// low six bits of bytes 0 to 3 (scales) and 4 to 7 (offsets); of the others a nibble of bytes 8 to
// 11, below the two bits that the first four left over.
struct SixBitPairs {
  std::array<int, 8> scale, offset;
};
SixBitPairs six_bit_pairs(const std::byte* bytes) {
  SixBitPairs out{};
  for (int i = 0; i < 4; ++i) {
    const int a = byte_at(bytes, i), b = byte_at(bytes, i + 4), c = byte_at(bytes, i + 8);
    const auto at = static_cast<std::size_t>(i);
    out.scale[at] = a & 0x3F;
    out.offset[at] = b & 0x3F;
    out.scale[at + 4] = (c & 0xF) | (a >> 6) << 4;
    out.offset[at + 4] = c >> 4 | (b >> 6) << 4;
  }
  return out;
}

}  // namespace

// 16 bytes of scale and offset (a nibble each), 64 bytes of codes of two bits, two f16.
void decode_q2_k(const std::byte* block, float* values) {
  const std::byte* const codes = block + 16;
  const float scale = half_at(block + 80), least = half_at(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, plane = i / kPlane % 4, pair = byte_at(block, i / 16);
    const int code = byte_at(codes, half * kPlane + i % kPlane) >> (2 * plane) & 3;
    const float step = scale * static_cast<float>(pair & 0xF);
    const float down = least * static_cast<float>(pair >> 4);
    values[i] = step * static_cast<float>(code) - down;
  }
}

// 32 bytes of third bits, 64 bytes of codes of two bits, sixteen scales of six bits, an f16. A
// third bit that is not set takes 4 away.
void decode_q3_k(const std::byte* block, float* values) {
  const std::byte *const thirds = block, *const codes = block + 32, *const scales = block + 96;
  const float scale = half_at(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16, half = i / 128, plane = i / kPlane % 4;
    const int low = byte_at(scales, group % 8) >> (group < 8 ? 0 : 4) & 0xF;
    const int high = byte_at(scales, 8 + group % 4) >> (2 * (group / 4)) & 3;
    const float step = scale * static_cast<float>((low | high << 4) - 32);
    const int code = byte_at(codes, half * kPlane + i % kPlane) >> (2 * plane) & 3;
    const int third = byte_at(thirds, i % kPlane) >> (i / kPlane) & 1;
    values[i] = step * static_cast<float>(code - (third == 0 ? 4 : 0));
  }
}

// Two f16, six-bit pairs, 128 bytes of nibbles: 32 low ones, then the 32 high ones of the same
// bytes.
void decode_q4_k(const std::byte* block, float* values) {
  const float scale = half_at(block), least = half_at(block + 2);
  const SixBitPairs pairs = six_bit_pairs(block + 4);
  const std::byte* const codes = block + 16;
  for (int group = 0; group < 8; ++group) {
    const auto at = static_cast<std::size_t>(group);
    const float step = scale * static_cast<float>(pairs.scale[at]);
    const float down = least * static_cast<float>(pairs.offset[at]);
    for (int i = 0; i < kPlane; ++i) {
      const int code = byte_at(codes, group / 2 * kPlane + i) >> (group % 2 * 4) & 0xF;
      values[group * kPlane + i] = step * static_cast<float>(code) - down;
    }
  }
}

// As Q4_K, with 32 bytes of fifth bits before the nibbles: bit g is for group g.
void decode_q5_k(const std::byte* block, float* values) {
  const float scale = half_at(block), least = half_at(block + 2);
  const SixBitPairs pairs = six_bit_pairs(block + 4);
  const std::byte *const fifths = block + 16, *const codes = block + 48;
  for (int group = 0; group < 8; ++group) {
    const auto at = static_cast<std::size_t>(group);
    const float step = scale * static_cast<float>(pairs.scale[at]);
    const float down = least * static_cast<float>(pairs.offset[at]);
    for (int i = 0; i < kPlane; ++i) {
      const int low = byte_at(codes, group / 2 * kPlane + i) >> (group % 2 * 4) & 0xF;
      const int code = low | (byte_at(fifths, i) >> group & 1) << 4;
      values[group * kPlane + i] = step * static_cast<float>(code) - down;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of two upper bits, sixteen scales of int8, an f16. Half of the
// block: 64 low nibbles, then the 64 high ones of the same bytes.
void decode_q6_k(const std::byte* block, float* values) {
  const std::byte *const nibbles = block, *const uppers = block + 128, *const scales = block + 192;
  const float scale = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, within = i % 128;
    const int low = byte_at(nibbles, half * 64 + within % 64) >> (within < 64 ? 0 : 4) & 0xF;
    const int high =
        byte_at(uppers, half * kPlane + within % kPlane) >> (2 * (within / kPlane)) & 3;
    const float step =
        scale * static_cast<float>(static_cast<std::int8_t>(byte_at(scales, i / 16)));
    values[i] = step * static_cast<float>((low | high << 4) - 32);
  }
}

}  // namespace octavo::gguf
