#include "octavo/backend/cpu/bit_packing.h"

#include <cstring>

namespace octavo::cpu {
namespace {

// Eight codes of b bits are exactly b bytes: one 64-bit word holds the group. Neighbouring codes
// are moved together, then pairs, then fours: ten operations for eight codes.
constexpr std::uint64_t kEvenBytes = 0x00FF00FF00FF00FFu, kEvenHalves = 0x0000FFFF0000FFFFu;

template <int kBits>
void pack_groups(const std::uint8_t* __restrict codes, std::int64_t groups,
                 std::uint8_t* __restrict packed) {
  const auto word_of = [](const std::uint8_t* from) {
    std::uint64_t w = 0;
    std::memcpy(&w, from, sizeof w);
    w = (w & kEvenBytes) | (w & ~kEvenBytes) >> (8 - kBits);
    w = (w & kEvenHalves) | (w & ~kEvenHalves) >> (16 - 2 * kBits);
    return (w & 0xFFFFFFFFu) | w >> 32 << (4 * kBits);
  };
  // Whole words, of which the next one overwrites the rest; but not beyond the end.
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::uint64_t w = word_of(codes + 8 * g);
    if (kBits * g + 8 <= kBits * groups) {
      std::memcpy(packed + kBits * g, &w, sizeof w);
    } else {
      std::memcpy(packed + kBits * g, &w, kBits);
    }
  }
}

template <int kBits>
void unpack_groups(const std::uint8_t* __restrict packed, std::int64_t groups,
                   std::uint8_t* __restrict codes) {
  constexpr std::uint64_t kFour = (std::uint64_t{1} << (4 * kBits)) - 1,
                          kTwo = 0x0000000100000001u * ((1u << (2 * kBits)) - 1),
                          kOne = 0x0001000100010001u * ((1u << kBits) - 1);
  for (std::int64_t g = 0; g < groups; ++g) {
    std::uint64_t w = 0;
    if (kBits * g + 8 <= kBits * groups) {
      std::memcpy(&w, packed + kBits * g, sizeof w);
    } else {
      std::memcpy(&w, packed + kBits * g, kBits);
    }
    w = (w & kFour) | (w >> (4 * kBits) & kFour) << 32;
    w = (w & kTwo) | (w >> (2 * kBits) & kTwo) << 16;
    w = (w & kOne) | (w >> kBits & kOne) << 8;
    std::memcpy(codes + 8 * g, &w, sizeof w);
  }
}

// Four bits, in loops that compilers turn into interleaved loads and stores.
template <>
void pack_groups<4>(const std::uint8_t* __restrict codes, std::int64_t groups,
                    std::uint8_t* __restrict packed) {
  for (std::int64_t i = 0; i < 4 * groups; ++i) {
    packed[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}
template <>
void unpack_groups<4>(const std::uint8_t* __restrict packed, std::int64_t groups,
                      std::uint8_t* __restrict codes) {
  for (std::int64_t i = 0; i < 4 * groups; ++i) {
    codes[2 * i] = packed[i] & 15;
    codes[2 * i + 1] = packed[i] >> 4;
  }
}
#if defined(__aarch64__)
// Six bits: ARM has loads and stores of three and four interleaved vectors, SSE2 no shuffle of
// bytes.
template <>
void pack_groups<6>(const std::uint8_t* __restrict codes, std::int64_t groups,
                    std::uint8_t* __restrict packed) {
  for (std::int64_t i = 0; i < 2 * groups; ++i) {
    const std::uint8_t a = codes[4 * i], b = codes[4 * i + 1], c = codes[4 * i + 2],
                       d = codes[4 * i + 3];
    packed[3 * i] = static_cast<std::uint8_t>(a | b << 6);
    packed[3 * i + 1] = static_cast<std::uint8_t>(b >> 2 | c << 4);
    packed[3 * i + 2] = static_cast<std::uint8_t>(c >> 4 | d << 2);
  }
}
template <>
void unpack_groups<6>(const std::uint8_t* __restrict packed, std::int64_t groups,
                      std::uint8_t* __restrict codes) {
  for (std::int64_t i = 0; i < 2 * groups; ++i) {
    const std::uint8_t x = packed[3 * i], y = packed[3 * i + 1], z = packed[3 * i + 2];
    codes[4 * i] = x & 63;
    codes[4 * i + 1] = static_cast<std::uint8_t>((x >> 6 | y << 2) & 63);
    codes[4 * i + 2] = static_cast<std::uint8_t>((y >> 4 | z << 4) & 63);
    codes[4 * i + 3] = z >> 2;
  }
}
#endif

using PackGroups = void (*)(const std::uint8_t*, std::int64_t, std::uint8_t*);
constexpr PackGroups kPack[8] = {nullptr,        nullptr,        pack_groups<2>, pack_groups<3>,
                                 pack_groups<4>, pack_groups<5>, pack_groups<6>, pack_groups<7>};
constexpr PackGroups kUnpack[8] = {nullptr,          nullptr,          unpack_groups<2>,
                                   unpack_groups<3>, unpack_groups<4>, unpack_groups<5>,
                                   unpack_groups<6>, unpack_groups<7>};

}  // namespace

void pack_codes(const std::uint8_t* codes, std::int64_t n, int bits, std::uint8_t* packed) {
  const std::int64_t groups = n / 8, rest = n % 8;
  kPack[bits](codes, groups, packed);
  if (rest == 0) return;
  std::uint8_t tail[8] = {}, tail_packed[8];
  for (std::int64_t i = 0; i < rest; ++i) tail[i] = codes[8 * groups + i];
  kPack[bits](tail, 1, tail_packed);
  for (std::int64_t i = 0; i < (rest * bits + 7) / 8; ++i)
    packed[groups * bits + i] = tail_packed[i];
}

void unpack_codes(const std::uint8_t* packed, std::int64_t n, int bits, std::uint8_t* codes) {
  const std::int64_t groups = n / 8, rest = n % 8;
  kUnpack[bits](packed, groups, codes);
  if (rest == 0) return;
  std::uint8_t tail[8], tail_packed[8] = {};
  for (std::int64_t i = 0; i < (rest * bits + 7) / 8; ++i)
    tail_packed[i] = packed[groups * bits + i];
  kUnpack[bits](tail_packed, 1, tail);
  for (std::int64_t i = 0; i < rest; ++i) codes[8 * groups + i] = tail[i];
}

}  // namespace octavo::cpu
