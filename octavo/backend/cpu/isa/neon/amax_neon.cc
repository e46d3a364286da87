#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/tile_amax.h"

namespace octavo::cpu {
namespace {

template <DType kSource>
std::int64_t raise_by_tiles(const void* values, std::int64_t tiles, std::uint32_t* amax) {
  constexpr std::int64_t kFour = 64 * element_bytes(kSource);
  const auto* from = static_cast<const std::byte*>(values);
  std::int64_t t = 0;
  for (; t + 4 <= tiles; t += 4, from += kFour)
    vst1q_u32(amax + t, vmaxq_u32(vld1q_u32(amax + t), four_amaxes<kSource>(from)));
  return t;
}

}  // namespace

std::int64_t neon_amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax) {
  if (dtype == DType::f32) return raise_by_tiles<DType::f32>(values, tiles, amax);
  if (dtype == DType::bf16) return raise_by_tiles<DType::bf16>(values, tiles, amax);
  return 0;
}

}  // namespace octavo::cpu
