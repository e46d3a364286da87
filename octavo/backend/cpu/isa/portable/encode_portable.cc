#include "octavo/backend/cpu/isa/portable/encode_spans.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"

namespace octavo::cpu::portable {

void encode_span(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                 std::uint64_t index) {
  encode_any(encoder, values, codes, n, index);
}

}  // namespace octavo::cpu::portable
