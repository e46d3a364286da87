#include "octavo/backend/cpu/isa/avx2/amax_kernel.h"
#include "octavo/backend/cpu/isa/avx2/avx2_internal.h"
#include "octavo/backend/cpu/isa/avx2/fp4_words_avx2.h"
#include "octavo/backend/cpu/isa/avx2/lanes_avx2.h"
#include "octavo/backend/cpu/isa/avx2/mx_panel_kernel.h"
#include "octavo/backend/cpu/isa/avx2/nvfp4_kernel.h"

namespace octavo::cpu {

MxKernels avx2_mx(const MxBlocks& blocks) { return choose_mx<Avx2Lanes>(blocks); }

Fp4Rows avx2_fp4(DType source) { return choose_fp4<Avx2Lanes, Avx2Words>(source); }

std::int64_t avx2_amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax) {
  return amax16<Avx2Lanes>(dtype, values, tiles, amax);
}

std::uint32_t avx2_amax(DType dtype, const void* values, std::int64_t n) {
  return amax_of_span<Avx2Lanes>(dtype, values, n);
}

}  // namespace octavo::cpu
