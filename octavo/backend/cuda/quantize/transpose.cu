// Transposes values or codes in tiles through shared memory: 16-byte loads, 16-byte stores. The
// position of a vector is swizzled by its index and its group of rows, so that neither side has
// bank conflicts.
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAcross = 8;  // vectors of a row of the tile, and groups of its rows

template <typename Element>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const __grid_constant__ Matrix from, const __grid_constant__ Matrix to,
                     std::int64_t tiles_across, bool vectors) {
  constexpr int kEach = 16 / static_cast<int>(sizeof(Element)), kSide = kAcross * kEach;
  __shared__ alignas(16) Element tile[kSide][kAcross][kEach];
  const std::int64_t first_row = blockIdx.x / tiles_across * kSide,
                     first_col = blockIdx.x % tiles_across * kSide;
#pragma unroll
  for (int i = 0; i < kSide * kAcross / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    const int r = at / kAcross, v = at % kAcross;
    const std::int64_t row = first_row + r, col = first_col + v * kEach;
    const unsigned char* start =
        static_cast<const unsigned char*>(from.data) + row * from.row_pitch + col * from.col_stride;
    Element* stored = tile[r][v ^ (r / kEach % kAcross)];
    if (vectors && row < from.rows && col + kEach <= from.cols) {
      *reinterpret_cast<uint4*>(stored) = __ldg(reinterpret_cast<const uint4*>(start));
    } else {
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        stored[j] = row < from.rows && col + j < from.cols
                        ? *reinterpret_cast<const Element*>(start + j * from.col_stride)
                        : Element{0};
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSide * kAcross / kThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kThreads;
    const int c = at / kAcross, group = at % kAcross;
    const std::int64_t row = first_col + c, col = first_row + group * kEach;
    if (row >= to.rows || col >= to.cols) continue;
    alignas(16) Element out[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      out[j] = tile[group * kEach + j][(c / kEach) ^ group][c % kEach];
    // Rows of `to` have room for whole vectors.
    *reinterpret_cast<uint4*>(static_cast<unsigned char*>(to.data) + row * to.row_pitch +
                              col * static_cast<int>(sizeof(Element))) =
        *reinterpret_cast<const uint4*>(out);
  }
}

template <typename Element>
void launch(const Exec& exec, const Matrix& from, const Matrix& to) {
  constexpr std::int64_t kSide = kAcross * 16 / static_cast<int>(sizeof(Element));
  const std::int64_t across = (from.cols + kSide - 1) / kSide,
                     down = (from.rows + kSide - 1) / kSide;
  const bool vectors =
      from.col_stride == static_cast<int>(sizeof(Element)) && has_aligned_pitch(from, 16);
  transpose_kernel<Element>
      <<<blocks_for(across * down, 1), kThreads, 0, stream_of(exec)>>>(from, to, across, vectors);
  OCTAVO_CUDA_LAUNCHED("transpose_kernel");
}

__global__ void __launch_bounds__(kThreads)
    transpose_scales_kernel(const __grid_constant__ Matrix from, const __grid_constant__ Matrix to,
                            int bytes) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= to.rows * to.cols) return;
  const std::int64_t row = at / to.cols, col = at % to.cols;
  const unsigned char* x =
      static_cast<const unsigned char*>(from.data) + col * from.row_pitch + row * from.col_stride;
  unsigned char* y =
      static_cast<unsigned char*>(to.data) + row * to.row_pitch + col * to.col_stride;
  if (bytes == 4)
    *reinterpret_cast<std::uint32_t*>(y) = *reinterpret_cast<const std::uint32_t*>(x);
  else
    *y = *x;
}

bool takes_vectors(const Matrix& codes) {
  return codes.cols % 16 == 0 && has_aligned_pitch(codes, 16);
}

}  // namespace

bool can_transpose(const QuantizeJob& job) {
  const QuantizedMatrix &rows = job.rowwise, &cols = job.columnwise;
  const bool same_tiles =
      (has_one_tile(rows) && has_one_tile(cols)) ||
      (rows.tile.rows == rows.tile.cols && rows.tile == cols.tile && rows.tile.rows > 0);
  const int scale_bytes = element_bytes(rows.scales.dtype, rows.scales.format);
  return rows.wanted() && cols.wanted() && same_tiles && job.policy == AmaxPolicy::max &&
         !job.hadamard_rowwise && !job.hadamard_columnwise &&
         job.encode.rounding == Rounding::nearest_even && rows.tensor_scale == nullptr &&
         (scale_bytes == 1 || scale_bytes == 4) && rows.codes.format.bits() == 8 &&
         rows.codes.col_stride == 1 && cols.codes.col_stride == 1 && takes_vectors(cols.codes);
}

void transpose_quantized(const Exec& exec, const QuantizedMatrix& rows,
                         const QuantizedMatrix& cols) {
  launch<std::uint8_t>(exec, rows.codes, cols.codes);
  const std::int64_t count = cols.scales.rows * cols.scales.cols;
  transpose_scales_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream_of(exec)>>>(
      rows.scales, cols.scales, element_bytes(rows.scales.dtype, rows.scales.format));
  OCTAVO_CUDA_LAUNCHED("transpose_scales_kernel");
}

void transpose_values(const Exec& exec, const Matrix& from, const Matrix& to) {
  const int bytes = element_bytes(from.dtype, from.format);
  bytes == 4   ? launch<std::uint32_t>(exec, from, to)
  : bytes == 2 ? launch<std::uint16_t>(exec, from, to)
               : launch<std::uint8_t>(exec, from, to);
}

}  // namespace octavo::cuda
