// Values of a matrix as rows of its transpose, in tiles that meet in shared memory: 16 bytes in, 16
// bytes out. A vector stands where its number and that of its group of rows say, so that neither
// side meets itself in a bank.
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/runtime.h"

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
  const bool vectors = from.col_stride == static_cast<int>(sizeof(Element)) &&
                       from.row_pitch % 16 == 0 &&
                       reinterpret_cast<std::uintptr_t>(from.data) % 16 == 0;
  transpose_kernel<Element>
      <<<blocks_for(across * down, 1), kThreads, 0, stream_of(exec)>>>(from, to, across, vectors);
  OCTAVO_CUDA_LAUNCHED("transpose_kernel");
}

}  // namespace

void transpose_values(const Exec& exec, const Matrix& from, const Matrix& to) {
  from.dtype == DType::f32 ? launch<std::uint32_t>(exec, from, to)
                           : launch<std::uint16_t>(exec, from, to);
}

}  // namespace octavo::cuda
