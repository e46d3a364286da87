// Packing of 8-bit codes into f32 panels, decoded and scaled in registers. Bytes of four rows are
// transposed before they are decoded, while they are smallest: sixteen results are then four
// vectors, each of four rows at one k, and a vector of four scales multiplies each. 23 operations
// for sixteen codes.
#include <arm_neon.h>

#include <algorithm>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"

namespace octavo::cpu {
namespace {

// Stores four decoded numbers, one of each row, times their scales.
[[gnu::always_inline]] inline void store_four(const Planes& planes, float32x4_t scale, float* to,
                                              std::int64_t pitch) {
  const uint16x8_t zero = vdupq_n_u16(0);
  const uint16x8_t pairs[2] = {vreinterpretq_u16_u8(vzip1q_u8(planes.low, planes.high)),
                               vreinterpretq_u16_u8(vzip2q_u8(planes.low, planes.high))};
  for (int i = 0; i < 2; ++i) {
    vst1q_f32(to + 2 * i * pitch,
              vmulq_f32(vreinterpretq_f32_u16(vzip1q_u16(zero, pairs[i])), scale));
    vst1q_f32(to + (2 * i + 1) * pitch,
              vmulq_f32(vreinterpretq_f32_u16(vzip2q_u16(zero, pairs[i])), scale));
  }
}

// Sixteen codes of four rows.
template <typename PlanesOf>
[[gnu::always_inline]] inline void pack_four(const PlanesOf& planes_of,
                                             const std::uint8_t* const* rows, std::int64_t k,
                                             float32x4_t scale, float* to, std::int64_t pitch) {
  uint8x16_t code[4];
  for (int j = 0; j < 4; ++j) code[j] = vld1q_u8(rows[j] + k);
  const uint8x16_t even[2] = {vzip1q_u8(code[0], code[2]), vzip2q_u8(code[0], code[2])},
                   odd[2] = {vzip1q_u8(code[1], code[3]), vzip2q_u8(code[1], code[3])};
  for (int half = 0; half < 2; ++half, to += 8 * pitch) {
    store_four(planes_of(vzip1q_u8(even[half], odd[half])), scale, to, pitch);
    store_four(planes_of(vzip2q_u8(even[half], odd[half])), scale, to + 4 * pitch, pitch);
  }
}

template <typename PlanesOf, int kCount>
[[gnu::always_inline]] inline void pack_rows(const PlanesOf& planes_of, const PackJob& job) {
  const float* scales = job.scales;
  auto* const panel = reinterpret_cast<float*>(job.panel);
  for (std::int64_t begin = 0; begin < job.n; begin += job.run, scales += kCount) {
    const std::int64_t end = std::min(begin + job.run, job.n);
    // Along the panel, so that whole cache lines are written.
    for (std::int64_t k = begin; k < end; k += 16)
      for (int r = 0; r < kCount; r += 4)
        pack_four(planes_of, job.rows + r, k, vld1q_f32(scales + r), panel + k * kCount + r,
                  kCount);
  }
}

template <typename PlanesOf>
void pack(const Format& format, const PackJob& job) {
  const PlanesOf planes_of(format);
  job.count == 8 ? pack_rows<PlanesOf, 8>(planes_of, job) : pack_rows<PlanesOf, 12>(planes_of, job);
}

}  // namespace

PackCodes neon_pack_codes(const PackedCodes& codes) {
  using E4m3 = ShiftedPlanes<BfloatTarget, 3>;
  using E5m2 = ShiftedPlanes<BfloatTarget, 2>;
  const Format& format = codes.format;
  if (codes.nibbles) return nullptr;
  if (format.mantissa_bits == 3 && E4m3::fits(format)) return pack<E4m3>;
  if (format.mantissa_bits == 2 && E5m2::fits(format)) return pack<E5m2>;
  return nullptr;
}

}  // namespace octavo::cpu
