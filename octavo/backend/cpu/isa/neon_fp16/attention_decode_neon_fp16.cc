// Which kernels few query rows have here.
#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_e4m3.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {
namespace {

void lay_halves(const float* q, std::int64_t size, std::byte* laid) {
  neon_fp16_narrow(q, laid, size);
}

}  // namespace

const FewKernels kNeonFp16FewE4m3{few_dots_e4m3, few_weigh_e4m3, lay_halves, Lane::f16,
                                  few_row_squares_e4m3};

const FewKernels* neon_fp16_few(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  if (!operand.is_quantized())
    return elements.dtype == DType::bf16 && elements.col_stride == 2 ? &kNeonFp16FewBf16 : nullptr;
  const bool per_row = tile_extent(operand.quantized.tile.cols, elements.cols) == elements.cols;
  return elements.format == e4m3fn && elements.col_stride == 1 && per_row ? &kNeonFp16FewE4m3
                                                                          : nullptr;
}

}  // namespace octavo::cpu
