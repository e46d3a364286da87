#include "octavo/backend/cpu/isa/avx2/avx2_internal.h"
#include "octavo/backend/cpu/isa/avx2/lanes_avx2.h"
#include "octavo/backend/cpu/isa/avx2/quantize_kernel.h"

namespace octavo::cpu {

MxKernels avx2_mx(const MxBlocks& blocks) { return choose_mx<Avx2Lanes>(blocks); }

Fp4Rows avx2_fp4(DType source) { return choose_fp4<Avx2Lanes>(source); }

std::int64_t avx2_amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax) {
  return amax16<Avx2Lanes>(dtype, values, tiles, amax);
}

}  // namespace octavo::cpu
