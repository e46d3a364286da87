#include "octavo/backend/cpu/attention/row_store.h"

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {

void RowStore::operator()(const Matrix& to, std::int64_t row, const float* values) const {
  alignas(64) std::byte stored[kMaxHeadSize * 8];
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  if (to.dtype == DType::f64) {
    for (std::int64_t e = 0; e < to.cols; ++e)
      reinterpret_cast<double*>(stored)[e] = static_cast<double>(values[e]);
    bytes = stored;
  } else if (to.dtype != DType::f32) {
    narrow_(values, stored, to.cols);
    bytes = stored;
  }
  scatter(to, row, 0, to.cols, bytes);
}

}  // namespace octavo::cpu
