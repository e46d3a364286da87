// Codes of packed weights in the order of BFMMLA's panels: [k / 4][12 columns][4]. Sixteen of them
// are four columns.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon_bf16/nibble_planes.h"

namespace octavo::cpu {
namespace {

constexpr int kCodes = 16;               // of a vector
constexpr int kVectors = kPairCols / 4;  // of a K step
constexpr std::int64_t kAhead = 1024;    // bytes, to be prefetched

// Sixteen codes, a byte each or two in a byte.
struct InBytes {
  static constexpr std::int64_t kBytes = kCodes;
  [[gnu::always_inline]] static uint8x16_t load(const std::uint8_t* from) { return vld1q_u8(from); }
};
struct InNibbles {
  static constexpr std::int64_t kBytes = kCodes / 2;
  [[gnu::always_inline]] static uint8x16_t load(const std::uint8_t* from) {
    const uint8x8_t two = vld1_u8(from);
    const uint8x8x2_t codes = vzip_u8(vand_u8(two, vdup_n_u8(15)), vshr_n_u8(two, 4));
    return vcombine_u8(codes.val[0], codes.val[1]);
  }
};

// The kernel Kernel<format, planes, in>::run for such codes; null where there is none.
template <typename Function, template <const Format&, typename, typename> typename Kernel>
Function with_packed_codes(const PackedCodes& codes) {
  const Format& format = codes.format;
  if (codes.nibbles)
    return format == e2m1fn ? Kernel<e2m1fn, NibblePlanes, InNibbles>::run : nullptr;
  if (format == e4m3fn) return Kernel<e4m3fn, ShiftedPlanes<BfloatTarget, 3>, InBytes>::run;
  if (format == e5m2) return Kernel<e5m2, ShiftedPlanes<BfloatTarget, 2>, InBytes>::run;
  if (format == e2m1fn) return Kernel<e2m1fn, NibblePlanes, InBytes>::run;
  if (format == e2m3fn) return Kernel<e2m3fn, TablePlanes<BfloatTarget>, InBytes>::run;
  return format == e3m2fn ? Kernel<e3m2fn, TablePlanes<BfloatTarget>, InBytes>::run : nullptr;
}

}  // namespace
}  // namespace octavo::cpu
