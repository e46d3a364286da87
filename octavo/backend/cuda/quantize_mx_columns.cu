// MX blocks down the columns, stored transposed, with or without those along the rows, from one
// read. A lane holds eight rows of one vector of sixteen bytes, a warp 32 rows of eight vectors.
// Row amaxes go over the lanes of a block, column amaxes over a lane's own rows and two shuffles.
// Eight codes down a column are eight bytes of the transpose; they meet those of the other warps in
// shared memory (swizzled, so that no bank is asked twice) and leave in lines of 128.
#include <type_traits>

#include "octavo/backend/cuda/copy_job.h"
#include "octavo/backend/cuda/device/fast_element.cuh"
#include "octavo/backend/cuda/device/fast_scale.cuh"
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/backend/cuda/vector_plan.h"

namespace octavo::cuda {
namespace {

constexpr int kBlock = 32;             // of MX
constexpr int kDown = 4, kBeside = 2;  // warps of a tile
constexpr int kThreads = kDown * kBeside * 32;
constexpr int kTileRows = kDown * kBlock;  // 128: a line of the transpose
constexpr int kLaneRows = 8;
constexpr int kAcross = 8;  // lanes side by side

struct ColumnsPlan {
  const unsigned char* from;
  unsigned char *row_codes, *row_scales, *col_codes, *col_scales;
  std::int64_t rows, cols;
  std::int64_t from_pitch, row_code_pitch, row_scale_pitch, col_code_pitch, col_scale_pitch;
  FastScale scale;
};

template <DType kSource>
constexpr int kLaneCols = kSource == DType::f32 ? 4 : 8;  // sixteen bytes

// The amaxes of a lane's rows, of the whole block of 32 columns.
template <DType kSource>
__device__ __forceinline__ void row_amaxes(const uint4 (&x)[kLaneRows],
                                           std::uint32_t (&amax)[kLaneRows]) {
  if constexpr (kSource != DType::f32) {
#pragma unroll
    for (int i = 0; i < kLaneRows; i += 2) {
      const unsigned two[2] = {halves_amax(x[i]), halves_amax(x[i + 1])};
      // Row i in the low half, row i + 1 in the high one: a shuffle serves both.
      unsigned both = __vimax3_u16x2(__byte_perm(two[0], two[1], 0x5410),
                                     __byte_perm(two[0], two[1], 0x7632), 0u);
#pragma unroll
      for (int step = 1; step < kBlock / kLaneCols<kSource>; step *= 2)
        both = __vimax3_u16x2(both, __shfl_xor_sync(0xFFFFFFFFu, both, step), 0u);
      amax[i] = widened_magnitude<kSource>(both << 16);
      amax[i + 1] = widened_magnitude<kSource>(both & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      amax[i] = 0;
#pragma unroll
      for (int c = 0; c < kLaneCols<kSource>; ++c)
        amax[i] = max(amax[i], f32_bits<kSource>(x[i], c) & 0x7FFFFFFFu);
#pragma unroll
      for (int step = 1; step < kBlock / kLaneCols<kSource>; step *= 2)
        amax[i] = max(amax[i], __shfl_xor_sync(0xFFFFFFFFu, amax[i], step));
    }
  }
}

// The amaxes of a lane's columns, of all 32 rows.
template <DType kSource>
__device__ __forceinline__ void column_amaxes(const uint4 (&x)[kLaneRows],
                                              std::uint32_t (&amax)[kLaneCols<kSource>]) {
  if constexpr (kSource != DType::f32) {
    constexpr unsigned kMask = 0x7FFF7FFFu;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned two = 0;
#pragma unroll
      for (int i = 0; i < kLaneRows; i += 2)
        two = __vimax3_u16x2(two, word(x[i], k) & kMask, word(x[i + 1], k) & kMask);
#pragma unroll
      for (int step = kAcross; step < 32; step *= 2)
        two = __vimax3_u16x2(two, __shfl_xor_sync(0xFFFFFFFFu, two, step), 0u);
      amax[2 * k] = widened_magnitude<kSource>(two << 16);
      amax[2 * k + 1] = widened_magnitude<kSource>(two & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int c = 0; c < kLaneCols<kSource>; ++c) {
      amax[c] = 0;
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i)
        amax[c] = max(amax[c], f32_bits<kSource>(x[i], c) & 0x7FFFFFFFu);
#pragma unroll
      for (int step = kAcross; step < 32; step *= 2)
        amax[c] = max(amax[c], __shfl_xor_sync(0xFFFFFFFFu, amax[c], step));
    }
  }
}

// NaN makes NaN of all it is multiplied with, and that is the code of a poisoned block.
__device__ __forceinline__ float factor_of(const MadeScale& made) {
  return made.poisoned ? __uint_as_float(0x7FC00000u) : made.factor;
}

// A few scales side by side: all at once where the address allows it, because stores of single
// bytes cost as much as those of whole sectors.
template <int kCount>
__device__ __forceinline__ void store_scales(unsigned char* to, const unsigned char* bytes,
                                             std::int64_t left) {
  using Word = std::conditional_t<kCount == 4, std::uint32_t, std::uint16_t>;
  if (left >= kCount && reinterpret_cast<std::uintptr_t>(to) % kCount == 0) {
    *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(bytes);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < left) to[i] = bytes[i];
}

// kWhole: no tile is cut off by an edge.
template <DType kSource, bool kE5m2, bool kRows, bool kWhole>
__global__ void __launch_bounds__(kThreads, kRows ? 2 : 3)
    columns_kernel(const __grid_constant__ ColumnsPlan plan) {
  constexpr int kCols = kLaneCols<kSource>, kTileCols = kBeside * kAcross * kCols;
  constexpr int kBlocksAcross = kTileCols / kBlock;
  constexpr int kLanesOfBlock = kBlock / kCols;
  __shared__ __align__(16) uint2 transposed[kTileCols][kTileRows / 8];
  __shared__ __align__(4) unsigned char row_bytes[kTileRows][kBlocksAcross];
  __shared__ __align__(4) unsigned char col_bytes[kTileCols][kDown];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int down = warp / kBeside, quarter = lane / kAcross;
  const int across = warp % kBeside * kAcross + lane % kAcross;
  const int tile_row = down * kBlock + quarter * kLaneRows;
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * kTileRows,
                     col0 = static_cast<std::int64_t>(blockIdx.x) * kTileCols;
  const std::int64_t row = row0 + tile_row, col = col0 + across * kCols;
  const bool inside = kWhole || col < plan.cols;

  uint4 x[kLaneRows] = {};
  const unsigned char* from =
      plan.from + row * plan.from_pitch + col * static_cast<std::int64_t>(16 / kCols);
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i)
    if (kWhole || (inside && row + i < plan.rows))
      x[i] = __ldg(reinterpret_cast<const uint4*>(from + i * plan.from_pitch));

  if constexpr (kRows) {
    std::uint32_t amax[kLaneRows];
    row_amaxes<kSource>(x, amax);
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      const MadeScale made = fast_tile_scale<FastKind::e8m0>(plan.scale, amax[i]);
      if (across % kLanesOfBlock == 0)
        row_bytes[tile_row + i][across / kLanesOfBlock] = static_cast<unsigned char>(made.bits);
      const float factor = factor_of(made);
      std::uint32_t words[kCols / 4];
#pragma unroll
      for (int k = 0; k < kCols / 4; ++k) {
        float u[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) u[c] = any_nan_value<kSource>(x[i], k * 4 + c) * factor;
        words[k] = hardware_four<kE5m2>(u[0], u[1], u[2], u[3]);
      }
      if (kWhole || (inside && row + i < plan.rows)) {
        unsigned char* to = plan.row_codes + (row + i) * plan.row_code_pitch + col;
        if constexpr (kCols == 8) {
          store_once(reinterpret_cast<uint2*>(to), uint2{words[0], words[1]});
        } else {
          store_once(reinterpret_cast<std::uint32_t*>(to), words[0]);
        }
      }
    }
  }

  // Else the compiler keeps all that it unpacked for the rows, and has no registers for it.
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i)
    asm volatile("" : "+r"(x[i].x), "+r"(x[i].y), "+r"(x[i].z), "+r"(x[i].w));
  std::uint32_t amax[kCols];
  column_amaxes<kSource>(x, amax);
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const MadeScale made = fast_tile_scale<FastKind::e8m0>(plan.scale, amax[c]);
    if (quarter == 0) col_bytes[across * kCols + c][down] = static_cast<unsigned char>(made.bits);
    const float factor = factor_of(made);
    std::uint32_t words[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float u[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) u[i] = any_nan_value<kSource>(x[k * 4 + i], c) * factor;
      words[k] = hardware_four<kE5m2>(u[0], u[1], u[2], u[3]);
    }
    transposed[across * kCols + c][(down * 4 + quarter) ^ (across % 8 * 2)] = {words[0], words[1]};
  }
  __syncthreads();

#pragma unroll
  for (int at = static_cast<int>(threadIdx.x); at < kTileCols * 8; at += kThreads) {
    const int c = at / 8, chunk = at % 8;
    // An even number of words of eight bytes apart: pairs of them stay together.
    const auto* codes =
        reinterpret_cast<const uint4*>(&transposed[c][(chunk ^ (c / kCols % 8)) * 2]);
    if (kWhole || (col0 + c < plan.cols && row0 + chunk * 16 < plan.rows))
      store_once(reinterpret_cast<uint4*>(plan.col_codes + (col0 + c) * plan.col_code_pitch + row0 +
                                          chunk * 16),
                 *codes);
  }
  const auto line = static_cast<std::int64_t>(threadIdx.x);
  if constexpr (kRows) {
    if (line < kTileRows && (kWhole || row0 + line < plan.rows))
      store_scales<kBlocksAcross>(
          plan.row_scales + (row0 + line) * plan.row_scale_pitch + col0 / kBlock, row_bytes[line],
          (plan.cols - col0 + kBlock - 1) / kBlock);
  }
  if (line < kTileCols && (kWhole || col0 + line < plan.cols))
    store_scales<kDown>(plan.col_scales + (col0 + line) * plan.col_scale_pitch + row0 / kBlock,
                        col_bytes[line], (plan.rows - row0 + kBlock - 1) / kBlock);
}

template <DType kSource>
bool launch(const Exec& exec, const ColumnsPlan& plan, bool is_e5m2, bool rows) {
  const std::int64_t down = (plan.rows + kTileRows - 1) / kTileRows;
  if (down > 65535) return false;
  const dim3 grid(blocks_for(plan.cols, kBeside * kAcross * kLaneCols<kSource>),
                  static_cast<unsigned>(down));
  constexpr int kTileCols = kBeside * kAcross * kLaneCols<kSource>;
  const bool whole = plan.rows % kTileRows == 0 && plan.cols % kTileCols == 0;
  const auto choose = [&]<bool kE5m2>() {
    if (rows)
      return whole ? columns_kernel<kSource, kE5m2, true, true>
                   : columns_kernel<kSource, kE5m2, true, false>;
    return whole ? columns_kernel<kSource, kE5m2, false, true>
                 : columns_kernel<kSource, kE5m2, false, false>;
  };
  const auto kernel =
      is_e5m2 ? choose.template operator()<true>() : choose.template operator()<false>();
  kernel<<<grid, kThreads, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("columns_kernel");
  return true;
}

bool is_aligned(const Matrix& matrix, int bytes) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % static_cast<unsigned>(bytes) == 0 &&
         matrix.row_pitch % bytes == 0;
}
bool are_blocks(const QuantizedMatrix& copy) {
  return copy.tile == Tile{1, kBlock} && copy.codes.col_stride == 1 &&
         (copy.scales.cols == 1 || copy.scales.col_stride == 1);
}

}  // namespace

bool quantize_mx_columns(const Exec& exec, const QuantizeJob& job) {
  const Matrix &values = job.source.values, &codes = job.columnwise.codes;
  ColumnsPlan plan{};
  if (!job.columnwise.wanted() || !is_usual(job) || job.given_inv_scale != nullptr ||
      fast_element(codes.format) > FastElement::e5m2 || !are_blocks(job.columnwise) ||
      (job.rowwise.wanted() && (!are_blocks(job.rowwise) || !is_aligned(job.rowwise.codes, 8))) ||
      !fast_scale(job.scale, codes.format, &plan.scale) || plan.scale.kind != FastKind::e8m0 ||
      !has_vectors(values) || values.rows % 16 != 0 || !is_aligned(codes, 16) ||
      values.row_pitch % 16 != 0)
    return false;
  plan.from = static_cast<const unsigned char*>(values.data);
  plan.row_codes = static_cast<unsigned char*>(job.rowwise.codes.data);
  plan.row_scales = static_cast<unsigned char*>(job.rowwise.scales.data);
  plan.col_codes = static_cast<unsigned char*>(codes.data);
  plan.col_scales = static_cast<unsigned char*>(job.columnwise.scales.data);
  plan.rows = values.rows;
  plan.cols = values.cols;
  plan.from_pitch = values.row_pitch;
  plan.row_code_pitch = job.rowwise.codes.row_pitch;
  plan.row_scale_pitch = job.rowwise.scales.row_pitch;
  plan.col_code_pitch = codes.row_pitch;
  plan.col_scale_pitch = job.columnwise.scales.row_pitch;
  const bool is_e5m2 = fast_element(codes.format) == FastElement::e5m2;
  switch (values.dtype) {
    case DType::bf16:
      return launch<DType::bf16>(exec, plan, is_e5m2, job.rowwise.wanted());
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::f32:
      return launch<DType::f32>(exec, plan, is_e5m2, job.rowwise.wanted());
    case DType::f16:
      return launch<DType::f16>(exec, plan, is_e5m2, job.rowwise.wanted());
#endif
    default:
      return false;
  }
}

}  // namespace octavo::cuda
