// The choice of decode attention kernels for an operand.
#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_e4m3.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {
namespace {

void pack_halves(const float* q, std::int64_t size, std::byte* laid) {
  neon_fp16_narrow(q, laid, size);
}

}  // namespace

const DecodeKernels kNeonFp16DecodeE4m3{decode_dots_e4m3, decode_weigh_e4m3, pack_halves,
                                        PackedType::f16, decode_row_squares_e4m3};

const DecodeKernels* neon_fp16_decode_attention(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  if (!operand.is_quantized())
    return elements.dtype == DType::bf16 && elements.col_stride == 2 ? &kNeonFp16DecodeBf16
                                                                     : nullptr;
  const bool per_row = tile_extent(operand.quantized.tile.cols, elements.cols) == elements.cols;
  return elements.format == e4m3fn && elements.col_stride == 1 && per_row ? &kNeonFp16DecodeE4m3
                                                                          : nullptr;
}

}  // namespace octavo::cpu
