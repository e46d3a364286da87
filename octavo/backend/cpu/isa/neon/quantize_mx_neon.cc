// MX quantization: amax, e8m0 scale and codes of 32 values in one pass that reads memory once.
//
// With the format's bias moved to that of f16 (a power of two, put into the block's own), an
// element times the inverse scale is an f16 whose exponent field is the code's, subnormal numbers
// included: FCVTN does that, and an integer rounding drops the rest of the mantissa. All factors
// are powers of two, so nothing else rounds.
//
// FCVTN rounds up here (FPCR, on magnitudes). A tie is then a multiple of 2^(drop-1) whose f32 was
// exact; where it was not, the value lies below the tie. "Exact" is read off the lower halves of
// the f32: they hold every lost bit from 2^-17 on, and below that the only tie is half of the
// smallest number (or lies at 2^-16), which rounds to zero whether it was met or missed from below.
//
// 34 operations for sixteen f32. No branch or address depends on data.
#include <arm_neon.h>

#include <cstring>

#include "octavo/backend/cpu/isa/neon/mx_scale.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/transpose16.h"
#include "octavo/base/fp_env.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kRows = 32;  // of a column block

// Eight magnitudes, scaled, to the rounded f16 before its lower bits are dropped.
template <int kDrop, bool kExact>
[[gnu::always_inline]] inline int16x8_t before_drop(float32x4_t a, float32x4_t b) {
  const int16x8_t half = vreinterpretq_s16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a), b));
  const uint16x8_t last =
      vshlq_n_u16(vreinterpretq_u16_s16(half), 15 - kDrop);  // the field's last bit, on top
  uint16x8_t less = vmvnq_u16(last);
  if constexpr (!kExact) {
    const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b));
    less = vornq_u16(vtstq_u16(low, low), last);
  }
  // Half-up, of one less but where exact and odd.
  return vsraq_n_s16(half, vreinterpretq_s16_u16(less), 15);
}

template <int kDrop>
[[gnu::always_inline]] inline uint8x16_t drop_bits(int16x8_t a, int16x8_t b) {
  if constexpr (kDrop <= 8) {
    return vqrshrun_high_n_s16(vqrshrun_n_s16(a, kDrop), b, kDrop);
  } else {
    return vuzp1q_u8(vreinterpretq_u8_s16(vrshrq_n_s16(a, kDrop)),
                     vreinterpretq_u8_s16(vrshrq_n_s16(b, kDrop)));
  }
}

// Sixteen fields with the signs of bytes whose top bit is the sign.
template <bool kEightBits>
[[gnu::always_inline]] inline uint8x16_t signed_codes(const MxConstants& k, uint8x16_t field,
                                                      uint8x16_t tops) {
  if constexpr (!kEightBits)
    tops = vshlq_u8(tops, vdupq_n_s8(static_cast<std::int8_t>(-k.sign_shift)));
  return vbslq_u8(vdupq_n_u8(k.sign), tops, vminq_u8(field, vdupq_n_u8(k.max_field)));
}

[[gnu::always_inline]] inline uint8x16_t top_bytes(const uint32x4_t raw[4]) {
  const uint16x8_t a = vuzp2q_u16(vreinterpretq_u16_u32(raw[0]), vreinterpretq_u16_u32(raw[1]));
  const uint16x8_t b = vuzp2q_u16(vreinterpretq_u16_u32(raw[2]), vreinterpretq_u16_u32(raw[3]));
  return vuzp2q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

// A block in flight: what its codes need, in registers.
struct Block {
  float32x4_t magnitude[8];
  uint8x16_t tops[2];
  BlockScale scale;
};

template <DType kSource>
[[gnu::always_inline]] inline Block load_block(const MxConstants& k, const std::byte* from) {
  Block block;
  std::uint32_t amax = 0;
  if constexpr (kSource == DType::f32) {
    const auto* p = reinterpret_cast<const std::uint32_t*>(from);
    uint32x4_t raw[8], bits[8];
    for (int i = 0; i < 8; ++i) {
      raw[i] = vld1q_u32(p + 4 * i);
      // FABS, because the mask of an AND would be an immediate, which overwrites its source.
      block.magnitude[i] = vabsq_f32(vreinterpretq_f32_u32(raw[i]));
      bits[i] = vreinterpretq_u32_f32(block.magnitude[i]);
    }
    block.tops[0] = top_bytes(raw);
    block.tops[1] = top_bytes(raw + 4);
    for (int step = 4; step > 0; step /= 2)
      for (int i = 0; i < step; ++i) bits[i] = vmaxq_u32(bits[i], bits[i + step]);
    amax = vmaxvq_u32(bits[0]);
  } else {
    const auto* p = reinterpret_cast<const std::uint16_t*>(from);
    uint16x8_t raw[4], bits[4];
    const uint16x8_t zero = vdupq_n_u16(0);
    uint16x8_t mask = vdupq_n_u16(0x7FFF);
    asm("" : "+w"(mask));  // as above
    for (int i = 0; i < 4; ++i) {
      raw[i] = vld1q_u16(p + 8 * i);
      bits[i] = vandq_u16(raw[i], mask);
      block.magnitude[2 * i] = vreinterpretq_f32_u16(vzip1q_u16(zero, bits[i]));
      block.magnitude[2 * i + 1] = vreinterpretq_f32_u16(vzip2q_u16(zero, bits[i]));
    }
    for (int i = 0; i < 2; ++i)
      block.tops[i] =
          vuzp2q_u8(vreinterpretq_u8_u16(raw[2 * i]), vreinterpretq_u8_u16(raw[2 * i + 1]));
    bits[0] = vmaxq_u16(vmaxq_u16(bits[0], bits[1]), vmaxq_u16(bits[2], bits[3]));
    amax = static_cast<std::uint32_t>(vmaxvq_u16(bits[0])) << 16;
  }
  block.scale = scale_of(k, amax);
  return block;
}

template <DType kSource, int kDrop, bool kEightBits>
[[gnu::always_inline]] inline void store_block(const MxConstants& k, const Block& block,
                                               std::uint8_t* to, std::uint8_t* scale) {
  constexpr bool kExact = kSource != DType::f32;
  const float32x4_t factor = vreinterpretq_f32_u32(vdupq_n_u32(block.scale.factor));
  const uint8x16_t poisoned = vdupq_n_u8(block.scale.poisoned);
  for (int half = 0; half < 2; ++half) {
    const float32x4_t* m = block.magnitude + 4 * half;
    const int16x8_t a =
        before_drop<kDrop, kExact>(vmulq_f32(m[0], factor), vmulq_f32(m[1], factor));
    const int16x8_t b =
        before_drop<kDrop, kExact>(vmulq_f32(m[2], factor), vmulq_f32(m[3], factor));
    const uint8x16_t code = signed_codes<kEightBits>(k, drop_bits<kDrop>(a, b), block.tops[half]);
    vst1q_u8(to + 16 * half, vbslq_u8(poisoned, vdupq_n_u8(k.poison), code));
  }
  *scale = block.scale.byte;
}

// The dependency chain from an amax to its factor is long, through the integer registers and back;
// so the next block starts it before the codes of this one are made.
template <DType kSource, int kDrop, bool kEightBits>
[[gnu::always_inline]] inline void row_of_blocks(const MxConstants& k, const std::byte* from,
                                                 std::uint8_t* codes, std::uint8_t* scales,
                                                 std::int64_t n) {
  constexpr std::int64_t kBytes = element_bytes(kSource), kStep = kMxBlock * kBytes;
  std::int64_t whole = n / kMxBlock;
  const std::int64_t rest = n - whole * kMxBlock;
  if (whole > 0) {
    // Two blocks per iteration, so that they alternate between two sets of registers instead of
    // being moved.
    Block even = load_block<kSource>(k, from);
    for (from += kStep; whole > 2; whole -= 2, from += 2 * kStep, codes += 2 * kMxBlock) {
      const Block odd = load_block<kSource>(k, from);
      store_block<kSource, kDrop, kEightBits>(k, even, codes, scales++);
      even = load_block<kSource>(k, from + kStep);
      store_block<kSource, kDrop, kEightBits>(k, odd, codes + kMxBlock, scales++);
    }
    store_block<kSource, kDrop, kEightBits>(k, even, codes, scales++);
    codes += kMxBlock;
    if (whole == 2) {
      store_block<kSource, kDrop, kEightBits>(k, load_block<kSource>(k, from), codes, scales++);
      from += kStep;
      codes += kMxBlock;
    }
  }
  if (rest > 0) {
    alignas(16) std::byte staged[kStep] = {};
    alignas(16) std::uint8_t out[kMxBlock];
    std::memcpy(staged, from, static_cast<std::size_t>(rest * kBytes));
    store_block<kSource, kDrop, kEightBits>(k, load_block<kSource>(k, staged), out, scales);
    std::memcpy(codes, out, static_cast<std::size_t>(rest));
  }
}

template <DType kSource, int kDrop, bool kEightBits>
void mx_rows(const MxBlocks& blocks, const void* values, std::uint8_t* codes, std::uint8_t* scales,
             std::int64_t n) {
  const FpEnvGuard guard(FpRounding::up);
  row_of_blocks<kSource, kDrop, kEightBits>(
      MxConstants(blocks), static_cast<const std::byte*>(values), codes, scales, n);
}

template <DType kSource>
[[gnu::always_inline]] inline void load16(const std::byte* from, uint32x4_t raw[4]) {
  if constexpr (kSource == DType::f32) {
    for (int i = 0; i < 4; ++i)
      raw[i] = vld1q_u32(reinterpret_cast<const std::uint32_t*>(from) + 4 * i);
  } else {
    const uint16x8_t zero = vdupq_n_u16(0);
    for (int i = 0; i < 2; ++i) {
      const uint16x8_t x = vld1q_u16(reinterpret_cast<const std::uint16_t*>(from) + 8 * i);
      raw[2 * i] = vreinterpretq_u32_u16(vzip1q_u16(zero, x));
      raw[2 * i + 1] = vreinterpretq_u32_u16(vzip2q_u16(zero, x));
    }
  }
}

// Blocks down sixteen columns of 32 rows.
template <DType kSource, int kDrop, bool kEightBits>
[[gnu::always_inline]] inline void columns16(const MxConstants& k, const std::byte* from,
                                             std::int64_t row_pitch, std::uint8_t* codes,
                                             std::int64_t code_pitch, std::uint8_t* scales,
                                             std::int64_t scale_pitch) {
  // FABS, because the mask of an AND would be an immediate, which overwrites its source.
  const auto magnitude_of = [](uint32x4_t raw) {
    return vreinterpretq_u32_f32(vabsq_f32(vreinterpretq_f32_u32(raw)));
  };
  uint32x4_t most[4] = {};
  for (std::int64_t row = 0; row < kRows; ++row) {
    uint32x4_t raw[4];
    load16<kSource>(from + row * row_pitch, raw);
    for (int i = 0; i < 4; ++i) most[i] = vmaxq_u32(most[i], magnitude_of(raw[i]));
  }
  float32x4_t factor[4];
  uint32x4_t bytes[4], poison[4];
  for (int i = 0; i < 4; ++i) scales_of(k, most[i], factor[i], bytes[i], poison[i]);
  alignas(16) std::uint8_t byte[16];
  vst1q_u8(byte, low_bytes(bytes));
  for (int i = 0; i < 16; ++i) scales[i * scale_pitch] = byte[i];
  const uint8x16_t poisoned = low_bytes(poison);
  for (std::int64_t part = 0; part < kRows; part += 16) {
    uint8x16_t rows[16];
    // Two at a time, interleaved: a single dependency chain stalls the core.
    for (int r = 0; r < 16; r += 2) {
      uint32x4_t raw[8];
      float32x4_t m[8];
      for (int j = 0; j < 2; ++j) load16<kSource>(from + (part + r + j) * row_pitch, raw + 4 * j);
      for (int i = 0; i < 8; ++i)
        m[i] = vmulq_f32(vreinterpretq_f32_u32(magnitude_of(raw[i])), factor[i % 4]);
      constexpr bool kExact = kSource != DType::f32;
      int16x8_t half[4];
      for (int i = 0; i < 4; ++i) half[i] = before_drop<kDrop, kExact>(m[2 * i], m[2 * i + 1]);
      for (int j = 0; j < 2; ++j) {
        const uint8x16_t field = drop_bits<kDrop>(half[2 * j], half[2 * j + 1]);
        const uint8x16_t code = signed_codes<kEightBits>(k, field, top_bytes(raw + 4 * j));
        rows[r + j] = vbslq_u8(poisoned, vdupq_n_u8(k.poison), code);
      }
    }
    transpose16(rows);
    for (int c = 0; c < 16; ++c) vst1q_u8(codes + c * code_pitch + part, rows[c]);
  }
}

template <DType kSource, int kDrop, bool kEightBits>
[[gnu::always_inline]] inline void columns_of_blocks(const MxConstants& k, const std::byte* from,
                                                     std::int64_t row_pitch, const MxPanel& panel) {
  constexpr std::int64_t kBytes = element_bytes(kSource);
  std::int64_t done = 0;
  for (; done + 16 <= panel.cols && panel.rows == kRows; done += 16)
    columns16<kSource, kDrop, kEightBits>(
        k, from + done * kBytes, row_pitch, panel.codes + done * panel.code_pitch, panel.code_pitch,
        panel.scales + done * panel.scale_pitch, panel.scale_pitch);
  for (; done < panel.cols; done += 16) {
    const std::int64_t count = panel.cols - done < 16 ? panel.cols - done : 16;
    alignas(16) std::byte staged[kRows * 16 * kBytes] = {};
    alignas(16) std::uint8_t out[16 * kRows], bytes[16];
    for (std::int64_t row = 0; row < panel.rows; ++row)
      std::memcpy(staged + row * 16 * kBytes, from + row * row_pitch + done * kBytes,
                  static_cast<std::size_t>(count * kBytes));
    columns16<kSource, kDrop, kEightBits>(k, staged, 16 * kBytes, out, kRows, bytes, 1);
    for (std::int64_t c = 0; c < count; ++c) {
      std::memcpy(panel.codes + (done + c) * panel.code_pitch, out + c * kRows, kRows);
      panel.scales[(done + c) * panel.scale_pitch] = bytes[c];
    }
  }
}

// Rows are copied to a buffer whose pitch is no power of two, which would map all of them to the
// same few cache sets; then the codes of rows and of columns are made from the copy.
template <DType kSource, int kDrop, bool kEightBits>
void mx_panel(const MxBlocks& blocks, const MxPanel& panel) {
  constexpr std::int64_t kBytes = element_bytes(kSource), kWide = kMxPanelCols * kBytes,
                         kPitch = kWide + 64;
  const FpEnvGuard guard(FpRounding::up);
  const MxConstants k(blocks);
  alignas(64) std::byte copy[kRows * kPitch];
  for (std::int64_t row = 0; row < panel.rows; ++row) {
    const auto* from = static_cast<const std::byte*>(panel.values) + row * panel.row_pitch;
    // Prefetches the next panel's part of the row: pieces are too short for the hardware
    // prefetcher.
    for (std::int64_t line = 0; line < kWide; line += 64) __builtin_prefetch(from + kWide + line);
    std::memcpy(copy + row * kPitch, from, static_cast<std::size_t>(panel.cols * kBytes));
    if (panel.row_codes != nullptr)
      row_of_blocks<kSource, kDrop, kEightBits>(
          k, copy + row * kPitch, panel.row_codes + row * panel.row_code_pitch,
          panel.row_scales + row * panel.row_scale_pitch, panel.cols);
  }
  columns_of_blocks<kSource, kDrop, kEightBits>(k, copy, kPitch, panel);
}

template <int kDrop, bool kEightBits>
MxKernels choose(DType source) {
  if (source == DType::f32)
    return {.rows = mx_rows<DType::f32, kDrop, kEightBits>,
            .panel = mx_panel<DType::f32, kDrop, kEightBits>};
  if (source == DType::bf16)
    return {.rows = mx_rows<DType::bf16, kDrop, kEightBits>,
            .panel = mx_panel<DType::bf16, kDrop, kEightBits>};
  return {};
}

}  // namespace

MxKernels neon_mx(const MxBlocks& blocks) {
  const Format& format = blocks.format;
  // Both signs alike, Inf or NaN above the largest value, and an f16 that holds it all.
  if (!format.is_signed || format.twos_complement || !format.has_negative_zero() ||
      format.bias > 15 || format.bits() > 8 || format.max_field() >> format.mantissa_bits > 30 ||
      binade_of(static_cast<float>(max_value(format))).exponent < 1)
    return {};
  switch (format.mantissa_bits) {
    case 1:
      return format.bits() == 8 ? choose<9, true>(blocks.source) : choose<9, false>(blocks.source);
    case 2:
      return format.bits() == 8 ? choose<8, true>(blocks.source) : choose<8, false>(blocks.source);
    case 3:
      return format.bits() == 8 ? choose<7, true>(blocks.source) : choose<7, false>(blocks.source);
    default:
      return {};
  }
}

}  // namespace octavo::cpu
