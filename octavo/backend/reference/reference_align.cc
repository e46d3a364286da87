// Reference MX exponent alignment (align_exponents), by definition: every code as a number, times a
// power of two, to the nearest code.
#include <algorithm>

#include "octavo/backend/align_job.h"
#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {

void align_exponents_matrix(const Exec&, const MxAlignJob& job) {
  const FpEnvGuard guard;
  const Matrix &from = job.from.codes, &scales = job.from.scales;
  const std::int64_t run = tile_extent(job.to.tile.cols, from.cols);
  std::int64_t changed = 0;
  for (std::int64_t row = 0; row < from.rows; ++row) {
    for (std::int64_t first = 0; first < from.cols; first += run) {
      const std::int64_t end = std::min(first + run, from.cols);
      std::uint32_t top = 0;
      for (std::int64_t col = first; col < end; col += kMxBlock)
        top = std::max(top, load_code(scales, row, col / kMxBlock));
      const auto scale = static_cast<float>(decode(scales.format, top));
      store(row_start(job.to.scales, row) + first / run * job.to.scales.col_stride, scale);
      for (std::int64_t col = first; col < end; ++col) {
        const std::uint32_t code = load_code(from, row, col),
                            exponent = load_code(scales, row, col / kMxBlock);
        const double value = decode(from.format, code);
        std::uint32_t made = code;
        if (!is_nan(scales.format, top) && !is_nan(from.format, code) && !is_inf(from.format, code))
          made = encode_value(from.format,
                              value * power_of_two(static_cast<int>(exponent) -  // never above 0
                                                   static_cast<int>(top)),
                              {}, 0)
                     .code;
        store_code(job.to.codes, row, col, made);
        if (made != code && decode(from.format, made) * power_of_two(static_cast<int>(top) -
                                                                     static_cast<int>(exponent)) !=
                                value)
          ++changed;
      }
    }
  }
  if (job.changed != nullptr) *job.changed += changed;
}

}  // namespace octavo::reference
