#include "octavo/backend/cpu/isa/avx2/quantize_kernel.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"

namespace octavo::cpu {

MxKernels avx512_mx(const MxBlocks& blocks) { return choose_mx<Avx512Lanes>(blocks); }

Fp4Rows avx512_fp4(DType source) { return choose_fp4<Avx512Lanes>(source); }

std::int64_t avx512_amax16(DType dtype, const void* values, std::int64_t tiles,
                           std::uint32_t* amax) {
  return amax16<Avx512Lanes>(dtype, values, tiles, amax);
}

}  // namespace octavo::cpu
