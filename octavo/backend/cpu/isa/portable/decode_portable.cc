#include "octavo/backend/cpu/isa/portable/decode_spans.h"
#include "octavo/backend/cpu/isa/portable/portable.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"
#include "octavo/backend/cpu/isa/portable/product_lanes.h"

namespace octavo::cpu::portable {

void decode_span(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  decode_any(decoder, codes, values, n);
}

}  // namespace octavo::cpu::portable

namespace octavo::cpu {

const ProductSpans kPortableProducts = portable::kProductSpans;

const Isa kPortableIsa{.encode = [](const Encoder&) -> EncodeSpan { return portable::encode_span; },
                       .decode = [](const Decoder&) -> DecodeSpan { return portable::decode_span; },
                       .count = portable::count_span,
                       .rank = portable::rank_tiles,
                       .fp4_squares = portable::fp4_squares,
                       .row_error = portable::row_error,
                       .products = &kPortableProducts};
const Kernels kPortableKernels =
    make_kernels<kPortableIsa, portable::gemm_method, portable::attention_method>(
        "cpu/portable", "plain C++, vectorised by the compiler");

}  // namespace octavo::cpu
