#include "octavo/backend/cpu/isa/portable/portable_internal.h"
#include "octavo/backend/cpu/isa/portable/row_error_lanes.h"

namespace octavo::cpu::portable {
std::uint32_t row_error(const RowErrorJob& job, RowErrorSums& sums) {
  return add_row_error<PortableSteps>(job, sums);
}

}  // namespace octavo::cpu::portable
