// A few rows of bf16 by FP4 weights, MX or NVFP4, which stay in four bits on their way from memory:
// reading them is what takes time. A warp has 16 rows of weights and a part of K, decodes what it
// loads in registers, exactly, and multiplies by all rows of A, eight at a time; the parts of a
// block are added up in their order. Warps with the same part and other weights read the same of A,
// which L1 then has: L2 would have to bring more of it than of the weights.
//
// The matrix instruction (mma.sync) gives a lane four places of K out of sixteen. Which of K stand
// there is free as long as both operands agree: a lane has 16 neighbours of K at a time, which
// share a scale, and pairs them as nibbles lie in a word, the first with the fifth.
#include <cuda_bf16.h>

#include "octavo/backend/cuda/alignment.h"
#include "octavo/backend/cuda/device/fp4_decode.cuh"
#include "octavo/backend/cuda/device/gemm_finish.cuh"
#include "octavo/backend/cuda/device/mma_sync.cuh"
#include "octavo/backend/cuda/gemm_plan.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr int kRows = 16;    // of weights, of a warp
constexpr int kChunk = 256;  // of K, of a warp at a time: a lane has four times 16

struct FewPlan {
  const unsigned char *x, *codes, *scales;
  std::int64_t x_pitch, code_pitch, scale_pitch;
  const float *x_scale, *tensor_scale;  // of all of x, and of all weights; the latter may be null
  int x_rows, weight_rows, depth, chunks;
  GemmFinish finish;
};

// What a lane has of a chunk: of two rows of weights, 16 codes four times, and the scales of the
// chunk, all 16 of NVFP4 or all 8 of MX.
template <bool kNvfp4>
struct Piece {
  uint2 codes[2][4];
  unsigned scales[2][kNvfp4 ? 4 : 2];
};

// Read once: must not push out of L1 what is read again.
__device__ __forceinline__ uint2 load_once(const unsigned char* from) {
  uint2 words;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "l"(from));
  return words;
}

// kWhole: K is chunks, and all scales of one are at a multiple of eight. Otherwise what lies beyond
// the end, which is at a multiple of 16, is zero, and scales are read byte by byte.
template <bool kNvfp4, bool kWhole>
__device__ __forceinline__ void load_piece(const unsigned char* const (&codes)[2],
                                           const unsigned char* const (&scales)[2], int chunk,
                                           int depth, int t, Piece<kNvfp4>& piece) {
  constexpr int kScaleBytes = kNvfp4 ? 16 : 8;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const unsigned char *code_at = codes[r] + static_cast<std::int64_t>(chunk) * (kChunk / 2),
                        *scale_at = scales[r] + static_cast<std::int64_t>(chunk) * kScaleBytes;
    if constexpr (kWhole) {
#pragma unroll
      for (int j = 0; j < 4; ++j) piece.codes[r][j] = load_once(code_at + j * 32);
#pragma unroll
      for (int w = 0; w < kScaleBytes / 8; ++w) {
        const uint2 words = load_once(scale_at + w * 8);
        piece.scales[r][2 * w] = words.x;
        piece.scales[r][2 * w + 1] = words.y;
      }
    } else {
#pragma unroll
      for (unsigned& word : piece.scales[r]) word = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool there = chunk * kChunk + j * 64 + t * 16 < depth;
        piece.codes[r][j] = there ? load_once(code_at + j * 32) : uint2{};
        const unsigned char* from = scale_at + (kNvfp4 ? 4 * j + t : 2 * j + t / 2);
        const unsigned scale = there ? __ldg(from) : 0u;
        piece.scales[r][kNvfp4 ? j : j / 2] |= scale
                                               << (kNvfp4 ? 8 * t : 16 * (j % 2) + 8 * (t / 2));
      }
    }
  }
}

// The scale of the 16 codes j of a lane that is the t-th of its four, twice.
template <bool kNvfp4>
__device__ __forceinline__ __nv_bfloat162 scale_of(const unsigned (&scales)[kNvfp4 ? 4 : 2], int j,
                                                   int t) {
  const unsigned byte =
      kNvfp4 ? scales[j] >> (8 * t) : scales[j / 2] >> (16 * (j % 2) + 8 * (t / 2));
  const unsigned bits = block_scale_bits<kNvfp4>(byte & 0xFFu), both = bits | bits << 16;
  return *reinterpret_cast<const __nv_bfloat162*>(&both);
}

// Nibbles i and i + 4 of a word as bf16, times a scale.
__device__ __forceinline__ unsigned decoded_pair(unsigned word, int i, __nv_bfloat162 scale) {
  const unsigned at_start = word >> (4 * i);
  return scaled_e2m1((at_start & 0x00070007u) << 6 | (at_start & 0x00080008u) << 12, scale);
}

// Values i and i + 4 of eight.
__device__ __forceinline__ unsigned value_pair(const uint4& eight, int i) {
  const unsigned low = i < 2 ? eight.x : eight.y, high = i < 2 ? eight.z : eight.w;
  return __byte_perm(low, high, i % 2 == 0 ? 0x5410 : 0x7632);
}

// Warps of a block: sixteen, or eight where each has many sums.
constexpr int warps_for(int eights) { return eights <= 2 ? 16 : 8; }

template <bool kNvfp4, bool kWhole, int kEights, int kRowWarps>
__global__ void __launch_bounds__(warps_for(kEights) * 32, 1)
    gemm_fp4_rows_kernel(const __grid_constant__ FewPlan plan) {
  constexpr int kWarps = warps_for(kEights), kParts = kWarps / kRowWarps,
                kBlockRows = kRowWarps * kRows;
  __shared__ float sums_of[kParts][kBlockRows][kEights * 8 + 1];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int part = thread / 32 / kRowWarps, warp_row = thread / 32 % kRowWarps * kRows;
  const int g = lane / 4, t = lane % 4;
  const int first_row = static_cast<int>(blockIdx.x) * kBlockRows;
  // Rows beyond the end are read from the last one and not stored.
  const unsigned char *codes[2], *scales[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = min(first_row + warp_row + g + 8 * r, plan.weight_rows - 1);
    codes[r] = plan.codes + row * plan.code_pitch + t * 8;
    scales[r] = plan.scales + row * plan.scale_pitch;
  }
  float sums[kEights][4] = {};
  Piece<kNvfp4> next;
  if (part < plan.chunks) load_piece<kNvfp4, kWhole>(codes, scales, part, plan.depth, t, next);
  for (int chunk = part; chunk < plan.chunks; chunk += kParts) {
    const Piece<kNvfp4> now = next;
    if (chunk + kParts < plan.chunks)
      load_piece<kNvfp4, kWhole>(codes, scales, chunk + kParts, plan.depth, t, next);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const __nv_bfloat162 upper = scale_of<kNvfp4>(now.scales[0], j, t),
                           lower = scale_of<kNvfp4>(now.scales[1], j, t);
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {  // of the lane's sixteen
        const unsigned up = eight == 0 ? now.codes[0][j].x : now.codes[0][j].y,
                       down = eight == 0 ? now.codes[1][j].x : now.codes[1][j].y;
        unsigned a[2][4];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          a[step][0] = decoded_pair(up, 2 * step, upper);
          a[step][1] = decoded_pair(down, 2 * step, lower);
          a[step][2] = decoded_pair(up, 2 * step + 1, upper);
          a[step][3] = decoded_pair(down, 2 * step + 1, lower);
        }
        const std::int64_t k =
            static_cast<std::int64_t>(chunk) * kChunk + j * 64 + t * 16 + eight * 8;
#pragma unroll
        for (int n = 0; n < kEights; ++n) {
          const int x_row = n * 8 + g;
          const uint4 values =
              x_row < plan.x_rows && (kWhole || k < plan.depth)
                  ? __ldg(reinterpret_cast<const uint4*>(plan.x + x_row * plan.x_pitch + k * 2))
                  : uint4{};
#pragma unroll
          for (int step = 0; step < 2; ++step)
            multiply_add(sums[n], a[step], value_pair(values, 2 * step),
                         value_pair(values, 2 * step + 1));
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kEights; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums_of[part][warp_row + g + (i < 2 ? 0 : 8)][n * 8 + 2 * t + i % 2] = sums[n][i];
  __syncthreads();
  const float scale =
      plan.tensor_scale != nullptr ? *plan.x_scale * *plan.tensor_scale : *plan.x_scale;
  for (int at = thread; at < kBlockRows * plan.x_rows; at += kWarps * 32) {
    const int row = at % kBlockRows, x_row = at / kBlockRows;
    if (first_row + row >= plan.weight_rows) continue;
    float sum = 0.0F;
#pragma unroll
    for (int p = 0; p < kParts; ++p) sum += sums_of[p][row][x_row];
    store_finished(plan.finish, x_row, first_row + row, sum * scale);
  }
}

template <bool kNvfp4, bool kWhole, int kEights>
void launch_eights(const Exec& exec, const FewPlan& plan) {
  // Four times the rows of a warp where that makes blocks for most multiprocessors.
  constexpr int kMany = 8192;
  const int row_warps = plan.weight_rows >= kMany ? 4 : 2;
  const auto kernel = row_warps == 4 ? gemm_fp4_rows_kernel<kNvfp4, kWhole, kEights, 4>
                                     : gemm_fp4_rows_kernel<kNvfp4, kWhole, kEights, 2>;
  kernel<<<blocks_for(plan.weight_rows, row_warps * kRows), warps_for(kEights) * 32, 0,
           stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("gemm_fp4_rows_kernel");
}

template <bool kNvfp4, bool kWhole>
void launch(const Exec& exec, const FewPlan& plan) {
  const int eights = (plan.x_rows + 7) / 8;
  if (eights <= 1) return launch_eights<kNvfp4, kWhole, 1>(exec, plan);
  if (eights <= 2) return launch_eights<kNvfp4, kWhole, 2>(exec, plan);
  if (eights <= 4) return launch_eights<kNvfp4, kWhole, 4>(exec, plan);
  launch_eights<kNvfp4, kWhole, kMostFewRows / 8>(exec, plan);
}

}  // namespace

bool is_nvfp4(const QuantizedMatrix& weights) { return weights.scales.format == e4m3fn; }

bool fits_fp4_rows(const GemmOperand& weights) {
  const QuantizedMatrix& q = weights.quantized;
  const bool scales_fit =
      q.scales.dtype == DType::code && q.scales.col_stride == 1 && q.tile.rows == 1 &&
      ((q.scales.format == e4m3fn && q.tile.cols == 16) ||
       (q.scales.format == e8m0fnu && q.tile.cols == 32 && q.tensor_scale == nullptr));
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return weights.is_quantized() && scales_fit && q.codes.format == e2m1fn && q.codes.packed &&
         has_aligned_rows(q.codes, 8) && q.codes.cols > 0 && q.codes.cols % q.tile.cols == 0 &&
         q.codes.rows < kMost && q.codes.cols < kMost;
}

void gemm_fp4_rows(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job) {
  const QuantizedMatrix& q = job.b.quantized;
  const FewPlan plan{.x = static_cast<const unsigned char*>(x.data),
                     .codes = static_cast<const unsigned char*>(q.codes.data),
                     .scales = static_cast<const unsigned char*>(q.scales.data),
                     .x_pitch = x.row_pitch,
                     .code_pitch = q.codes.row_pitch,
                     .scale_pitch = q.scales.row_pitch,
                     .x_scale = x_scale,
                     .tensor_scale = q.tensor_scale,
                     .x_rows = static_cast<int>(x.rows),
                     .weight_rows = static_cast<int>(q.codes.rows),
                     .depth = static_cast<int>(x.cols),
                     .chunks = static_cast<int>((x.cols + kChunk - 1) / kChunk),
                     .finish = finish_of(job)};
  if (x.cols % kChunk == 0 && has_aligned_rows(q.scales, 8))
    is_nvfp4(q) ? launch<true, true>(exec, plan) : launch<false, true>(exec, plan);
  else
    is_nvfp4(q) ? launch<true, false>(exec, plan) : launch<false, false>(exec, plan);
}

}  // namespace octavo::cuda
