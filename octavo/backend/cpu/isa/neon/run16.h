// The loop around a kernel that encodes sixteen elements.
#pragma once

#include <arm_neon.h>

#include <cstring>

#include "octavo/tensor/dtype.h"

namespace octavo::cpu {
namespace {

template <DType kSource, typename Convert>
[[gnu::always_inline]] inline void run16(const void* values, void* codes, std::int64_t n,
                                         Convert&& convert) {
  constexpr std::int64_t kBytes = element_bytes(kSource);
  const auto* __restrict from = static_cast<const std::byte*>(values);
  auto* __restrict to = static_cast<std::uint8_t*>(codes);
  std::int64_t done = 0;
  for (; done + 32 <= n; done += 32) {
    const uint8x16_t first = convert(from + done * kBytes),
                     second = convert(from + (done + 16) * kBytes);
    vst1q_u8(to + done, first);
    vst1q_u8(to + done + 16, second);
  }
  for (; done < n; done += 16) {
    alignas(16) std::byte staged[16 * kBytes] = {};
    alignas(16) std::uint8_t out[16];
    const auto count = static_cast<std::size_t>(n - done < 16 ? n - done : 16);
    std::memcpy(staged, from + done * kBytes, count * kBytes);
    vst1q_u8(out, convert(staged));
    std::memcpy(to + done, out, count);
  }
}

}  // namespace
}  // namespace octavo::cpu
