// Quantizes MX blocks down the columns, stored transposed (columnwise), with or without the rowwise
// copy, from one read. A lane holds eight rows of one 16-byte vector, a warp 32 rows of eight
// vectors. Row amaxes are reduced over the lanes of a block, column amaxes over a lane's own rows
// and by two shuffles. Eight codes down a column are eight bytes of the transpose; they are
// combined with those of the other warps in shared memory (swizzled against bank conflicts) and
// stored in lines of 128 bytes.
//
// Scales: a tile has a word of four for each of its lines, and to L2 a word costs as much as a
// sector, or more. So in large matrices each of eight tiles that share sectors of scales fills some
// of them with its own words, and mx_scale_sectors.cu sorts the words into place.
#include <type_traits>

#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/quantize/fast_encode.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.cuh"
#include "octavo/backend/cuda/quantize/mx_scale_sectors.h"
#include "octavo/backend/cuda/quantize/mx_warp_tile.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kDown = 4, kBeside = 2;  // warps of a tile, down and across
constexpr int kThreads = kDown * kBeside * 32;
constexpr int kTileRows = kDown * kMxBlock;  // 128: a line of the transpose
// From this many values on, the second kernel that whole sectors need costs less than they save.
constexpr std::int64_t kSectorsPay = std::int64_t{1} << 26;

struct ColumnsPlan {
  const unsigned char* from;
  unsigned char *row_codes, *row_scales, *col_codes, *col_scales;
  std::int64_t rows, cols;
  std::int64_t from_pitch, row_code_pitch, row_scale_pitch, col_code_pitch, col_scale_pitch;
  FastScale scale;
  // Up to these lines, in both directions, tiles share sectors; zero where none do.
  std::int64_t shared_rows, shared_cols;
};

// The factors of up to eight blocks, and their scales as bytes. The factor of a poisoned block is
// NaN, so all its codes become NaN.
template <int kCount>
__device__ __forceinline__ uint2 made_factors(const FastScale& scale,
                                              const std::uint32_t (&amax)[kCount],
                                              float (&factor)[kCount]) {
  std::uint32_t bytes[2] = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const MadeScale made = fast_tile_scale<FastKind::e8m0>(scale, amax[i]);
    factor[i] = made.factor;
    bytes[i / 4] |= made.bits << (8 * (i % 4));
  }
  return {bytes[0], bytes[1]};
}

// Stores neighbouring scales: at once where the address allows it.
template <int kCount>
__device__ __forceinline__ void store_scales(unsigned char* to, std::uint32_t bytes,
                                             std::int64_t left) {
  using Word = std::conditional_t<kCount == 4, std::uint32_t, std::uint16_t>;
  if (left >= kCount && is_aligned(to, kCount)) {
    *reinterpret_cast<Word*>(to) = static_cast<Word>(bytes);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (i < left) to[i] = static_cast<unsigned char>(bytes >> (8 * i));
}

// Stores the scales of a tile's 128 lines in one direction; `bytes[k][line]` is the k-th of a line.
// `line0` counts lines, `at0` values along them.
template <int kCount, int kLines, bool kWhole>
__device__ __forceinline__ void store_side(unsigned char* scales, std::int64_t pitch, int line,
                                           std::int64_t line0, std::int64_t at0, std::int64_t lines,
                                           std::int64_t length, bool shared,
                                           const unsigned char (&bytes)[kCount][kLines]) {
  std::uint32_t word = 0;
#pragma unroll
  for (int k = 0; k < kCount; ++k) word |= static_cast<std::uint32_t>(bytes[k][line]) << (8 * k);
  unsigned char* to = scales + at0 / kMxBlock;
  if constexpr (kCount == 4 && kLines == kSectorLines) {
    if (shared) {
      const SectorWord own = sector_word(static_cast<int>(at0 / kLines % kSectorTiles), line);
      to = scales + at0 / (kLines * kSectorTiles) * kSectorBytes;
      *reinterpret_cast<std::uint32_t*>(to + (line0 + own.line) * pitch + own.word * 4) = word;
      return;
    }
  }
  if (kWhole || line0 + line < lines)
    store_scales<kCount>(to + (line0 + line) * pitch, word,
                         (length - at0 + kMxBlock - 1) / kMxBlock);
}

// With both copies and their scales, plain stores are faster by a hundredth or more; with columns
// alone, streaming stores (evict first).
template <bool kPlain, typename T>
__device__ __forceinline__ void store_codes_as(T* to, T codes) {
  if constexpr (kPlain) {
    *to = codes;
  } else {
    store_once(to, codes);
  }
}

// kWhole: no tile crosses an edge.
template <DType kSource, bool kE5m2, bool kRows, bool kWhole>
__global__ void __launch_bounds__(kThreads, kRows ? 2 : 3)
    columns_kernel(const __grid_constant__ ColumnsPlan plan) {
  constexpr int kCols = kLaneCols<kSource>, kTileCols = kBeside * kAcross * kCols;
  constexpr int kMxBlocksAcross = kTileCols / kMxBlock;
  constexpr int kLanesOfBlock = kMxBlock / kCols;
  __shared__ __align__(16) uint2 transposed[kTileCols][kTileRows / 8];
  __shared__ __align__(8) unsigned char row_bytes[kMxBlocksAcross][kTileRows];
  __shared__ __align__(8) unsigned char col_bytes[kDown][kTileCols];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int down = warp / kBeside, quarter = lane / kAcross;
  const int across = warp % kBeside * kAcross + lane % kAcross;
  const int tile_row = down * static_cast<int>(kMxBlock) + quarter * kLaneRows;
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

  float row_factor[kLaneRows], col_factor[kCols];
  std::uint32_t row_amax[kLaneRows], col_amax[kCols];
  column_amaxes<kSource>(x, col_amax);
  bool cleans = false;
  if (plan.scale.drops_nan) {
    std::uint32_t most = 0;
#pragma unroll
    for (int c = 0; c < kCols; ++c) most = max(most, col_amax[c]);
    cleans = __any_sync(0xFFFFFFFFu, most > 0x7F800000u);
  }
  if (cleans) {
    uint4 clean[kLaneRows];
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) clean[i] = without_nan<kSource>(x[i]);
    column_amaxes<kSource>(clean, col_amax);
    if constexpr (kRows) row_amaxes<kSource>(clean, row_amax);
  } else if constexpr (kRows) {
    row_amaxes<kSource>(x, row_amax);
  }
  if constexpr (kRows) {
    const uint2 bytes = made_factors(plan.scale, row_amax, row_factor);
    if (across % kLanesOfBlock == 0)
      *reinterpret_cast<uint2*>(&row_bytes[across / kLanesOfBlock][tile_row]) = bytes;
  }
  {
    const uint2 bytes = made_factors(plan.scale, col_amax, col_factor);
    auto* const to = reinterpret_cast<std::uint32_t*>(&col_bytes[down][across * kCols]);
    if (quarter == 0) to[0] = bytes.x;
    if (quarter == 0 && kCols == 8) to[1] = bytes.y;
  }

  // Two rows at a time: unpacked values serve both copies.
  std::uint32_t columns[kCols][2];
#pragma unroll
  for (int i = 0; i < kLaneRows; i += 2) {
    float v[2][kCols];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int c = 0; c < kCols; ++c) v[j][c] = any_nan_value<kSource>(x[i + j], c);
      if constexpr (kRows) {
        std::uint32_t words[kCols / 4];
        const float factor = row_factor[i + j];
#pragma unroll
        for (int k = 0; k < kCols / 4; ++k)
          words[k] = hardware_four<kE5m2>(v[j][4 * k] * factor, v[j][4 * k + 1] * factor,
                                          v[j][4 * k + 2] * factor, v[j][4 * k + 3] * factor);
        if (kWhole || (inside && row + i + j < plan.rows)) {
          unsigned char* to = plan.row_codes + (row + i + j) * plan.row_code_pitch + col;
          if constexpr (kCols == 8) {
            store_codes_as<kRows>(reinterpret_cast<uint2*>(to), uint2{words[0], words[1]});
          } else {
            store_codes_as<kRows>(reinterpret_cast<std::uint32_t*>(to), words[0]);
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const std::uint32_t two =
          hardware_pair<kE5m2>(v[0][c] * col_factor[c], v[1][c] * col_factor[c]);
      columns[c][i / 4] = i % 4 == 0 ? two : columns[c][i / 4] | two << 16;
    }
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    transposed[across * kCols + c][(down * 4 + quarter) ^ (across % 8 * 2)] = {columns[c][0],
                                                                               columns[c][1]};
  __syncthreads();

#pragma unroll
  for (int at = thread; at < kTileCols * 8; at += kThreads) {
    const int c = at / 8, chunk = at % 8;
    // The pitch is an even number of 8-byte words, so that pairs of them stay together.
    const auto* codes =
        reinterpret_cast<const uint4*>(&transposed[c][(chunk ^ (c / kCols % 8)) * 2]);
    if (kWhole || (col0 + c < plan.cols && row0 + chunk * 16 < plan.rows))
      store_codes_as<kRows>(
          reinterpret_cast<uint4*>(plan.col_codes + (col0 + c) * plan.col_code_pitch + row0 +
                                   chunk * 16),
          *codes);
  }
  if (thread < kTileCols)
    store_side<kDown, kTileCols, kWhole>(
        plan.col_scales, plan.col_scale_pitch, thread, col0, row0, plan.cols, plan.rows,
        row0 < plan.shared_rows && col0 + kTileCols <= plan.cols, col_bytes);
  if (kRows && thread >= kThreads - kTileRows)
    store_side<kMxBlocksAcross, kTileRows, kWhole>(
        plan.row_scales, plan.row_scale_pitch, thread - (kThreads - kTileRows), row0, col0,
        plan.rows, plan.cols, col0 < plan.shared_cols && row0 + kTileRows <= plan.rows, row_bytes);
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
  if (plan.shared_rows != 0 || plan.shared_cols != 0)
    sort_sectors(exec, {plan.row_scales, plan.row_scale_pitch, plan.rows, plan.shared_cols},
                 {plan.col_scales, plan.col_scale_pitch, plan.cols, plan.shared_rows});
  return true;
}

bool are_blocks(const QuantizedMatrix& copy) {
  return copy.tile == Tile{1, kMxBlock} && copy.codes.col_stride == 1 &&
         (copy.scales.cols == 1 || copy.scales.col_stride == 1);
}

}  // namespace

bool quantize_mx_columns(const Exec& exec, const QuantizeJob& job) {
  const Matrix &values = job.source.values, &codes = job.columnwise.codes;
  ColumnsPlan plan{};
  if (!job.columnwise.wanted() || (!is_usual(job) && !is_usual_te(job)) ||
      job.given_inv_scale != nullptr || fast_element(codes.format) > FastElement::e5m2 ||
      !are_blocks(job.columnwise) ||
      (job.rowwise.wanted() &&
       (!are_blocks(job.rowwise) || !has_aligned_rows(job.rowwise.codes, 8))) ||
      !fast_scale(job.scale, codes.format, &plan.scale) || plan.scale.kind != FastKind::e8m0 ||
      !has_vectors(values) || values.rows % 16 != 0 || !has_aligned_rows(codes, 16) ||
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
  // Columns alone gain nothing, and f32 tiles have other shapes.
  if (values.dtype != DType::f32 && job.rowwise.wanted() &&
      values.rows * values.cols >= kSectorsPay) {
    constexpr std::int64_t kShared = kSectorTiles * kSectorLines;
    if (has_aligned_rows(job.rowwise.scales, kSectorBytes))
      plan.shared_cols = plan.cols / kShared * kShared;
    if (has_aligned_rows(job.columnwise.scales, kSectorBytes))
      plan.shared_rows = plan.rows / kShared * kShared;
  }
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
