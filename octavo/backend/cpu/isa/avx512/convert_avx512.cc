#include "octavo/backend/cpu/isa/avx2/decode_kernel.h"
#include "octavo/backend/cpu/isa/avx2/encode_kernel.h"
#include "octavo/backend/cpu/isa/avx2/narrow_kernel.h"
#include "octavo/backend/cpu/isa/avx512/avx512.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"

namespace octavo::cpu {

EncodeSpan avx512_encode(const Encoder& encoder) {
  const EncodeSpan chosen = choose_encode<Avx512Lanes>(encoder);
  return chosen != nullptr ? chosen : avx512_encode_any;
}

ScaledSpan avx512_encode_scaled(const Encoder& encoder) {
  return choose_scaled<Avx512Lanes>(encoder);
}

DecodeSpan avx512_decode(const Decoder& decoder) {
  const DecodeSpan chosen = choose_decode<Avx512Lanes>(decoder);
  return chosen != nullptr ? chosen : avx512_decode_any;
}

DecodeScaled avx512_decode_scaled(const Decoder& decoder) {
  return lanes_decode(decoder.format) ? decode_scaled_span<Avx512Lanes> : nullptr;
}

void avx512_narrow_bf16(const float* values, std::uint16_t* out, std::int64_t n) {
  narrow_bf16<Avx512Lanes>(values, out, n);
}

void avx512_widen_bf16(const void* values, float* out, std::int64_t n) {
  widen_bf16_lanes<Avx512Lanes>(values, out, n);
}

const Isa kAvx512Isa{.encode = avx512_encode,
                     .decode = avx512_decode,
                     .count = avx512_count,
                     .encode_scaled = avx512_encode_scaled,
                     .mx = avx512_mx,
                     .amax16 = avx512_amax16,
                     .amax = avx512_amax,
                     .fp4 = avx512_fp4,
                     .fp4_searches = true,
                     .fp4_searches_more = true,
                     .decode_scaled = avx512_decode_scaled,
                     .narrow_bf16 = avx512_narrow_bf16,
                     .rank = avx512_rank,
                     .fp4_squares = avx512_fp4_squares,
                     .row_error = avx512_row_error,
                     .products = &kAvx512Products,
                     .norms = &kAvx512Norms,
                     .widen_bf16 = avx512_widen_bf16,
                     .activate = avx512_activate,
                     .mx_searches = true,
                     .mx_ranks = true,
                     .subtract_f64 = avx512_subtract_f64};

const Kernels kAvx512Kernels = make_kernels<kAvx512Isa, avx512_gemm, avx512_attention>(
    "cpu/avx512", "AVX-512 (F, BW, DQ, VL)");

}  // namespace octavo::cpu
