// MX quantization of f32 to E4M3 along rows: amaxes and scales of a batch of blocks, then their
// codes, read again from L1.
#include "octavo/backend/cpu/isa/neon_fp16/e4m3_blocks.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {
namespace {

// Enough to hide the latency from the last amax to its factor.
constexpr std::int64_t kBatchBlocks = 64, kBatchSize = kBatchBlocks * kMxBlock;

template <bool kClamps>
void mx_rows_e4m3(const MxBlocks& blocks, const void* values, std::uint8_t* codes,
                  std::uint8_t* scales, std::int64_t n) {
  constexpr std::int64_t kAhead = kBatchSize * element_bytes(DType::f32);
  const FpEnvGuard guard;
  MxConstants k(blocks);
  k.down = 0;  // plain factors: the encoder rebiases to the element itself
  const E4m3Lanes lanes(blocks.format);
  const uint8x16_t poison = vdupq_n_u8(blocks.poison_code);
  BlockScales<kBatchBlocks> made;
  const auto batch = [&](const float* x, std::int64_t ahead, std::uint8_t* to)
      __attribute__((always_inline)) {
    for (std::int64_t first = 0; first < kBatchBlocks; first += 16) {
      const auto of_four = [&](int i) __attribute__((always_inline)) {
        return x + (first + 4 * i) * kMxBlock;
      };
      sixteen_scales(k, of_four, NotSeen{}, first, made);
    }
    const auto* from = reinterpret_cast<const std::byte*>(x);
    for (std::int64_t b = 0; b < kBatchBlocks; b += 2) {
      TileLanes tile[4];
      for (int g = 0; g < 4; ++g)
        tile[g] = TileLanes(made.factor + b + g / 2, made.poisoned + b + g / 2);
      const std::byte* at = from + b * kMxBlock * 4;
      for (std::int64_t line = 0; line < 256; line += 64) __builtin_prefetch(at + ahead + line);
      encode_groups<DType::f32, kClamps, 4>(lanes, at, tile, poison, to + b * kMxBlock);
    }
  };
  const auto* x = static_cast<const float*>(values);
  for (; n >= kBatchSize; n -= kBatchSize, x += kBatchSize, codes += kBatchSize) {
    batch(x, kAhead, codes);
    std::memcpy(scales, made.bytes, kBatchBlocks);
    scales += kBatchBlocks;
  }
  if (n > 0) {
    alignas(16) float staged[kBatchSize] = {};
    alignas(16) std::uint8_t out[kBatchSize];
    std::memcpy(staged, x, static_cast<std::size_t>(n) * sizeof(float));
    batch(staged, 0, out);
    std::memcpy(codes, out, static_cast<std::size_t>(n));
    std::memcpy(scales, made.bytes, static_cast<std::size_t>((n + kMxBlock - 1) / kMxBlock));
  }
}

}  // namespace

MxRows neon_fp16_mx_rows_e4m3(const MxBlocks& blocks) {
  if (!e4m3_blocks_fit(blocks)) return nullptr;
  return e4m3_blocks_clamp(blocks) ? mx_rows_e4m3<true> : mx_rows_e4m3<false>;
}

}  // namespace octavo::cpu
