// What has no kernel of its own here is the portable code, compiled for this instruction set: its
// loops have variable shifts and minima of unsigned numbers, which SSE2 lacks.
#include "octavo/backend/cpu/isa/avx2/avx2_internal.h"
#include "octavo/backend/cpu/isa/portable/count_spans.h"
#include "octavo/backend/cpu/isa/portable/decode_spans.h"
#include "octavo/backend/cpu/isa/portable/encode_spans.h"
#include "octavo/backend/cpu/isa/portable/product_lanes.h"
#include "octavo/backend/cpu/norm_lanes.h"
#include "octavo/backend/cpu/produce/activation_spans.h"

namespace octavo::cpu {

void avx2_encode_any(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                     std::uint64_t index) {
  portable::encode_any(encoder, values, codes, n, index);
}

void avx2_decode_any(const Decoder& decoder, const void* codes, void* values, std::int64_t n) {
  portable::decode_any(decoder, codes, values, n);
}

Counts avx2_count(const Encoder& encoder, const void* values, std::int64_t n, std::uint64_t index) {
  return portable::count_any(encoder, values, n, index);
}

void avx2_activate(ProducerKind kind, const double* x, const double* gate, float* out,
                   std::int64_t n) {
  activate_span(kind, x, gate, out, n);
}

const ProductSpans kAvx2Products = portable::kProductSpans;
const NormSpans kAvx2Norms{kNormSpansOf<float>};

}  // namespace octavo::cpu
