#include "octavo/backend/registry_internal.h"
#include "octavo/pipeline/stream/transpose_internal.h"

namespace octavo {

void transpose(std::span<const std::byte> from, std::int64_t rows, std::int64_t cols, DType dtype,
               std::span<std::byte> to) {
  const auto matrix = [dtype](const std::byte* data, std::int64_t height, std::int64_t width) {
    const std::int64_t size = element_bytes(dtype);
    return Matrix{.data = const_cast<std::byte*>(data),
                  .dtype = dtype,
                  .rows = height,
                  .cols = width,
                  .row_pitch = width * size,
                  .col_stride = size};
  };
  const auto entry = offered(nullptr, &Kernels::transpose, nullptr, "transpose");
  entry({}, matrix(from.data(), rows, cols), matrix(to.data(), cols, rows));
}

}  // namespace octavo
