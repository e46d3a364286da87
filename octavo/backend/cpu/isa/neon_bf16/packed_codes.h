// Codes of B in words of one column: [k / 4][12 columns][4] as BFMMLA's panels have them, or of
// eight codes of four bits, [k / 8][12 columns][8]. Packed weights are in that order; rows are
// brought into it. Sixteen bytes are four columns.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/nibble_planes.h"

namespace octavo::cpu {
namespace {

constexpr int kCodes = 16;               // of a vector: four columns by four elements of K
constexpr int kVectors = kPairCols / 4;  // of a K step
constexpr std::int64_t kAhead = 2048;    // bytes, to be prefetched

// How sixteen bytes become vectors of codes, one for each K step of a word.
struct InBytes {
  static constexpr int kSteps = 1;
  static constexpr std::int64_t kPerByte = 1;
  [[gnu::always_inline]] static void load(const std::uint8_t* from, uint8x16_t (&codes)[kSteps]) {
    codes[0] = vld1q_u8(from);
  }
};
// Packed weights (PanelOrder::halves).
struct InHalves {
  static constexpr int kSteps = 2;
  static constexpr std::int64_t kPerByte = 2;
  [[gnu::always_inline]] static void load(const std::uint8_t* from, uint8x16_t (&codes)[kSteps]) {
    const uint8x16_t two = vld1q_u8(from);
    codes[0] = vandq_u8(two, vdupq_n_u8(15));
    codes[1] = vshrq_n_u8(two, 4);
  }
};
// Words of rows: codes are in order.
struct InPairs {
  static constexpr int kSteps = 2;
  static constexpr std::int64_t kPerByte = 2;
  [[gnu::always_inline]] static void load(const std::uint8_t* from, uint8x16_t (&codes)[kSteps]) {
    const uint8x16_t two = vld1q_u8(from), even = vandq_u8(two, vdupq_n_u8(15)),
                     odd = vshrq_n_u8(two, 4);
    const uint32x4_t low = vreinterpretq_u32_u8(vzip1q_u8(even, odd)),
                     high = vreinterpretq_u32_u8(vzip2q_u8(even, odd));
    codes[0] = vreinterpretq_u8_u32(vuzp1q_u32(low, high));
    codes[1] = vreinterpretq_u8_u32(vuzp2q_u32(low, high));
  }
};
constexpr int kWordBytes = 4, kWordRow = kPairCols * kWordBytes;  // of a column; of all

// `bytes` bytes, a multiple of four and at most kRowPiece, of twelve rows to words.
constexpr std::int64_t kRowPiece = 128;
[[gnu::always_inline]] inline void gather_words(const std::uint8_t* const* rows, std::int64_t from,
                                                std::int64_t bytes, std::uint8_t* words) {
  for (std::int64_t at = 0; at < bytes; at += 16) {
    const std::int64_t some = bytes - at < 16 ? bytes - at : 16;
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      uint32x4_t row[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const std::uint8_t* const there = rows[4 * v + i] + from + at;
        if (some == 16) {
          row[i] = vreinterpretq_u32_u8(vld1q_u8(there));
          __builtin_prefetch(there + 256);
        } else {
          std::uint8_t last[16] = {};
          std::memcpy(last, there, static_cast<std::size_t>(some));
          row[i] = vreinterpretq_u32_u8(vld1q_u8(last));
        }
      }
      const uint32x4_t a = vzip1q_u32(row[0], row[2]), b = vzip2q_u32(row[0], row[2]),
                       c = vzip1q_u32(row[1], row[3]), d = vzip2q_u32(row[1], row[3]);
      const uint32x4_t word[4] = {vzip1q_u32(a, c), vzip2q_u32(a, c), vzip1q_u32(b, d),
                                  vzip2q_u32(b, d)};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        if (at + kWordBytes * i < bytes)
          vst1q_u8(words + (at / kWordBytes + i) * kWordRow + 16 * v,
                   vreinterpretq_u8_u32(word[i]));
    }
  }
}

// The kernel Kernel<format, planes, in>::run for such codes; null where there is none.
template <typename Function, template <const Format&, typename, typename> typename Kernel>
Function with_packed_codes(const PackedCodes& codes) {
  const Format& format = codes.format;
  if (codes.nibbles) {
    if (format != e2m1fn) return nullptr;
    return codes.in_panels ? Kernel<e2m1fn, NibblePlanes, InHalves>::run
                           : Kernel<e2m1fn, NibblePlanes, InPairs>::run;
  }
  if (format == e4m3fn) return Kernel<e4m3fn, ShiftedPlanes<BfloatTarget, 3>, InBytes>::run;
  if (format == e5m2) return Kernel<e5m2, ShiftedPlanes<BfloatTarget, 2>, InBytes>::run;
  if (format == e2m1fn) return Kernel<e2m1fn, NibblePlanes, InBytes>::run;
  if (format == e2m3fn) return Kernel<e2m3fn, TablePlanes<BfloatTarget>, InBytes>::run;
  return format == e3m2fn ? Kernel<e3m2fn, TablePlanes<BfloatTarget>, InBytes>::run : nullptr;
}

}  // namespace
}  // namespace octavo::cpu
