#include "octavo/backend/cpu/isa/avx2/avx2.h"
#include "octavo/backend/cpu/isa/avx2/avx2_internal.h"
#include "octavo/backend/cpu/isa/avx2/decode_kernel.h"
#include "octavo/backend/cpu/isa/avx2/encode_kernel.h"
#include "octavo/backend/cpu/isa/avx2/lanes_avx2.h"
#include "octavo/backend/cpu/isa/avx2/narrow_kernel.h"

namespace octavo::cpu {

EncodeSpan avx2_encode(const Encoder& encoder) {
  const EncodeSpan chosen = choose_encode<Avx2Lanes>(encoder);
  return chosen != nullptr ? chosen : avx2_encode_any;
}

ScaledSpan avx2_encode_scaled(const Encoder& encoder) { return choose_scaled<Avx2Lanes>(encoder); }

DecodeSpan avx2_decode(const Decoder& decoder) {
  const DecodeSpan chosen = choose_decode<Avx2Lanes>(decoder);
  return chosen != nullptr ? chosen : avx2_decode_any;
}

DecodeScaled avx2_decode_scaled(const Decoder& decoder) {
  return lanes_decode(decoder.format) ? decode_scaled_span<Avx2Lanes> : nullptr;
}

const Isa kAvx2Isa{.encode = avx2_encode,
                   .decode = avx2_decode,
                   .count = avx2_count,
                   .encode_scaled = avx2_encode_scaled,
                   .mx = avx2_mx,
                   .amax16 = avx2_amax16,
                   .amax = avx2_amax,
                   .fp4 = avx2_fp4,
                   .fp4_searches = true,
                   .fp4_searches_more = true,
                   .decode_scaled = avx2_decode_scaled,
                   .narrow_bf16 = narrow_bf16<Avx2Lanes>,
                   .rank = avx2_rank,
                   .fp4_squares = avx2_fp4_squares,
                   .row_error = avx2_row_error,
                   .products = &kAvx2Products,
                   .norms = &kAvx2Norms,
                   .widen_bf16 = widen_bf16_lanes<Avx2Lanes>,
                   .activate = avx2_activate,
                   .mx_searches = true,
                   .mx_ranks = true,
                   .subtract_f64 = avx2_subtract_f64};

const Kernels kAvx2Kernels =
    make_kernels<kAvx2Isa, avx2_gemm, avx2_attention>("cpu/avx2", "AVX2, F16C and FMA");

}  // namespace octavo::cpu
