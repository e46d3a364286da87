#include "octavo/backend/cpu/isa/avx2/amax_kernel.h"
#include "octavo/backend/cpu/isa/avx2/mx_panel_kernel.h"
#include "octavo/backend/cpu/isa/avx2/nvfp4_kernel.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/fp4_words_avx512.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"

namespace octavo::cpu {

MxKernels avx512_mx(const MxBlocks& blocks) { return choose_mx<Avx512Lanes>(blocks); }

Fp4Rows avx512_fp4(DType source) { return choose_fp4<Avx512Lanes, Avx512Words>(source); }

std::int64_t avx512_amax16(DType dtype, const void* values, std::int64_t tiles,
                           std::uint32_t* amax) {
  return amax16<Avx512Lanes>(dtype, values, tiles, amax);
}

std::uint32_t avx512_amax(DType dtype, const void* values, std::int64_t n) {
  return amax_of_span<Avx512Lanes>(dtype, values, n);
}

}  // namespace octavo::cpu
