// MX quantization of bf16 along rows, in 16-bit lanes.
#include "octavo/backend/cpu/isa/neon_fp16/mx_batch.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::cpu {
namespace {

template <typename Element>
void mx_rows(const MxBlocks& blocks, const void* values, std::uint8_t* codes, std::uint8_t* scales,
             std::int64_t n) {
  const FpEnvGuard guard(FpRounding::up);
  const MxConstants k(blocks);
  alignas(64) std::uint16_t lanes[kBatchSize];
  alignas(64) std::uint8_t tops[kBatchSize];
  const BatchLanes batch{lanes, tops};
  const auto some_blocks = [&](const std::byte* from, std::int64_t count, std::uint8_t* to,
                               std::uint8_t* scale) __attribute__((always_inline)) {
    finish_batch<Element>(k, batch, stage_batch(from, count, batch), count, to, scale);
  };
  const auto* from = static_cast<const std::byte*>(values);
  for (; n >= kBatchSize; n -= kBatchSize) {
    some_blocks(from, kBatch, codes, scales);
    from += kBatchSize * kBfloatBytes;
    codes += kBatchSize;
    scales += kBatch;
  }
  const std::int64_t whole = n / kMxBlock, done = whole * kMxBlock, rest = n - done;
  if (whole > 0) some_blocks(from, whole, codes, scales);
  if (rest > 0) {
    alignas(16) std::byte staged[kMxBlock * kBfloatBytes] = {};
    alignas(16) std::uint8_t out[kMxBlock];
    std::memcpy(staged, from + done * kBfloatBytes, static_cast<std::size_t>(rest * kBfloatBytes));
    some_blocks(staged, 1, out, scales + whole);
    std::memcpy(codes + done, out, static_cast<std::size_t>(rest));
  }
}

}  // namespace

MxRows neon_fp16_mx_rows(const MxBlocks& blocks) {
  if (!mx_lanes_fit(blocks)) return nullptr;
  return visit_mx_element(blocks,
                          []<typename Element>(Element) -> MxRows { return mx_rows<Element>; });
}

}  // namespace octavo::cpu
