#include "octavo/backend/cpu/isa/portable/count_spans.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"

namespace octavo::cpu::portable {

Counts count_span(const Encoder& encoder, const void* values, std::int64_t n, std::uint64_t index) {
  return count_any(encoder, values, n, index);
}

}  // namespace octavo::cpu::portable
