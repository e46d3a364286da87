// Quantizes 1D blocks of 16, 32 or 128 values along a row: NVFP4, MX, 1x128. A thread holds sixteen
// values, the lanes of a block reduce its amax by shuffles, and everything stays in registers
// between the one read and the one write. Floor: bytes over the copy rate; scale bytes are stored
// four at a time, because single-byte stores cost a tenth of it.
#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/quantize/copy_job.h"
#include "octavo/backend/cuda/quantize/fast_encode.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 16;

struct BlockPlan {
  const unsigned char* from;
  unsigned char* to;
  unsigned char* scales;
  std::int64_t rows, tiles, cols;  // tiles: per row
  std::int64_t from_pitch, to_pitch, scale_pitch, scale_stride;
  int code_bits;
  bool words_of_scales;  // four scale bytes can be stored as an aligned word
  bool wide;             // sixteen codes can be stored at an aligned address
  const float* tensor_scale;
  FastScale scale;
  EncodePlan lane;
};

// kFlat: a single long row of whole blocks.
template <DType kSource, int kWidth, FastKind kKind, FastElement kElement, bool kFlat>
__global__ void __launch_bounds__(kThreads)
    row_blocks_kernel(const __grid_constant__ BlockPlan plan) {
  constexpr int kLanes = kWidth / kPerThread;  // per block
  const std::int64_t lanes_of_row = plan.tiles * kLanes;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = kFlat ? 0 : at / lanes_of_row;
  const std::int64_t lane_at = kFlat ? at : at - row * lanes_of_row;
  const bool inside = kFlat ? at < lanes_of_row : row < plan.rows;
  const bool has[2] = {inside && (kFlat || lane_at * kPerThread < plan.cols),
                       inside && (kFlat || lane_at * kPerThread + kVector < plan.cols)};
  Raw<kSource> raw[2] = {};
#pragma unroll
  for (int v = 0; v < 2; ++v)
    if (has[v]) raw[v] = load_raw<kSource>(plan.from + row * plan.from_pitch, lane_at * 2 + v);

  const auto block_amax = [&](const Raw<kSource>& left, const Raw<kSource>& right) {
    std::uint32_t amax = max(vector_amax<kSource>(left), vector_amax<kSource>(right));
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2)
      amax = max(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, step));
    return amax;
  };
  std::uint32_t amax = block_amax(raw[0], raw[1]);
  if (plan.scale.drops_nan && __any_sync(0xFFFFFFFFu, amax > 0x7F800000u))
    amax = block_amax(without_nan(raw[0]), without_nan(raw[1]));
  const float tensor_scale = kKind == FastKind::two_level ? *plan.tensor_scale : 1.0F;
  const MadeScale made = fast_tile_scale<kKind>(plan.scale, amax, tensor_scale);

  unsigned char* to = plan.to + row * plan.to_pitch;
  uint2 codes[2];
  std::uint32_t loose[2][kVector];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float u[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) u[i] = any_nan_value<kSource>(raw[v], i) * made.factor;
    codes[v] = encode_eight<kElement>(u, plan.lane, loose[v]);
    if (made.poisoned) {
      const std::uint32_t poison = plan.scale.poison_code * 0x01010101u;  // FP4 and FP6 have 0
      codes[v] = {poison, poison};
      if constexpr (kElement == FastElement::lanes) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) loose[v][i] = plan.scale.poison_code;
      }
    }
  }
  if constexpr (kElement == FastElement::lanes) {
#pragma unroll
    for (int v = 0; v < 2; ++v)
      if (has[v]) store_codes(to, lane_at * 2 + v, plan.code_bits, loose[v]);
  } else if constexpr (kElement == FastElement::e2m1) {
    auto* words = reinterpret_cast<std::uint32_t*>(to) + lane_at * 2;
    if (kFlat && inside) {
      store_once(reinterpret_cast<uint2*>(words), uint2{codes[0].x, codes[1].x});
    } else {
      if (has[0]) store_once(words, codes[0].x);
      if (has[1]) store_once(words + 1, codes[1].x);
    }
  } else {
    auto* words = reinterpret_cast<uint2*>(to) + lane_at * 2;
    if (kFlat && inside) {
      store_once(reinterpret_cast<uint4*>(words),
                 uint4{codes[0].x, codes[0].y, codes[1].x, codes[1].y});
    } else {
      if (has[0]) store_once(words, codes[0]);
      if (has[1]) store_once(words + 1, codes[1]);
    }
  }

  unsigned char* scale_to =
      plan.scales + row * plan.scale_pitch + lane_at / kLanes * plan.scale_stride;
  constexpr bool kBytes = kKind == FastKind::e8m0 || kKind == FastKind::two_level;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  if constexpr (kBytes && 4 * kLanes <= 32) {
    std::uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      four |= __shfl_down_sync(0xFFFFFFFFu, made.bits, i * kLanes) << (8 * i);
    if (plan.words_of_scales) {
      if (inside && lane % (4 * kLanes) == 0) *reinterpret_cast<std::uint32_t*>(scale_to) = four;
      return;
    }
  }
  if (!inside || lane % kLanes != 0) return;
  if constexpr (kBytes) {
    *scale_to = static_cast<unsigned char>(made.bits);
  } else {
    *reinterpret_cast<std::uint32_t*>(scale_to) = made.bits;
  }
}

template <DType kSource, int kWidth, FastKind kKind, FastElement kElement>
bool launch(const Exec& exec, const BlockPlan& plan) {
  const std::int64_t threads = plan.rows * plan.tiles * (kWidth / kPerThread);
  const auto kernel = plan.rows == 1 && plan.cols == plan.tiles * kWidth && plan.wide
                          ? row_blocks_kernel<kSource, kWidth, kKind, kElement, true>
                          : row_blocks_kernel<kSource, kWidth, kKind, kElement, false>;
  kernel<<<blocks_for(threads, kThreads), kThreads, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("row_blocks_kernel");
  return true;
}

template <DType kSource>
bool launch_source(const Exec& exec, const BlockPlan& plan, std::int64_t width,
                   FastElement element) {
  const FastKind kind = plan.scale.kind;
  using E = FastElement;
  using K = FastKind;
  if (width == 32 && kind == K::e8m0) {
    if (element == E::e4m3) return launch<kSource, 32, K::e8m0, E::e4m3>(exec, plan);
#ifndef OCTAVO_CUDA_ONE_CONFIG
    if (element == E::e5m2) return launch<kSource, 32, K::e8m0, E::e5m2>(exec, plan);
    if (element == E::e2m1) return launch<kSource, 32, K::e8m0, E::e2m1>(exec, plan);
    return launch<kSource, 32, K::e8m0, E::lanes>(exec, plan);
#endif
  }
#ifndef OCTAVO_CUDA_ONE_CONFIG
  if (width == 16 && kind == K::two_level && element == E::e2m1)
    return launch<kSource, 16, K::two_level, E::e2m1>(exec, plan);
  if (width == 128 && kind == K::quotient) {
    if (element == E::e4m3) return launch<kSource, 128, K::quotient, E::e4m3>(exec, plan);
    if (element == E::e5m2) return launch<kSource, 128, K::quotient, E::e5m2>(exec, plan);
  }
  if (width == 128 && kind == K::inverse) {
    if (element == E::e4m3) return launch<kSource, 128, K::inverse, E::e4m3>(exec, plan);
    if (element == E::e5m2) return launch<kSource, 128, K::inverse, E::e5m2>(exec, plan);
  }
  if (width == 128 && kind == K::power_f32) {
    if (element == E::e4m3) return launch<kSource, 128, K::power_f32, E::e4m3>(exec, plan);
    if (element == E::e5m2) return launch<kSource, 128, K::power_f32, E::e5m2>(exec, plan);
  }
#endif
  return false;
}

}  // namespace

bool quantize_1d_blocks(const Exec& exec, const QuantizeJob& job) {
  const Matrix &values = job.source.values, &codes = job.rowwise.codes,
               &scales = job.rowwise.scales;
  const std::int64_t width = job.rowwise.tile.cols;
  VectorPlan vectors;
  BlockPlan plan{};
  if ((!is_usual(job) && !is_usual_te(job)) || job.given_inv_scale != nullptr ||
      job.rowwise.tile.rows != 1 || (width != 16 && width != 32 && width != 128) ||
      !fast_scale(job.scale, codes.format, &plan.scale) || !vector_plan(values, codes, &vectors))
    return false;
  FastElement element = fast_element(codes.format);
  if (element == FastElement::e2m1 && !codes.packed) element = FastElement::lanes;
  EncodeKind kind{};
  if (element == FastElement::lanes &&
      (!encode_plan(codes.format, job.encode, &plan.lane, &kind) || kind != EncodeKind::one_nan))
    return false;
  const int scale_bytes = element_bytes(scales.dtype, scales.format);
  const std::int64_t tiles = scales.cols;
  // A single long row of blocks where blocks do not cross row ends.
  const bool flat = vectors.rows == 1 && values.cols % width == 0 &&
                    (scales.rows == 1 || scales.row_pitch == tiles * scale_bytes) &&
                    (tiles == 1 || scales.col_stride == scale_bytes);
  plan.from = static_cast<const unsigned char*>(values.data);
  plan.to = static_cast<unsigned char*>(codes.data);
  plan.scales = static_cast<unsigned char*>(scales.data);
  plan.rows = flat ? 1 : values.rows;
  plan.tiles = flat ? values.rows * tiles : tiles;
  plan.cols = flat ? values.rows * values.cols : values.cols;
  plan.from_pitch = values.row_pitch;
  plan.to_pitch = codes.row_pitch;
  plan.scale_pitch = scales.row_pitch;
  plan.scale_stride = flat ? scale_bytes : scales.col_stride;
  plan.code_bits = stored_bits_of(codes);
  plan.words_of_scales = plan.scale_stride == 1 && plan.tiles % 4 == 0 &&
                         is_aligned(scales.data, 4) &&
                         (plan.rows == 1 || plan.scale_pitch % 4 == 0);
  plan.wide = is_aligned(codes.data, 16);
  plan.tensor_scale = job.rowwise.tensor_scale;
  switch (values.dtype) {
    case DType::bf16:
      return launch_source<DType::bf16>(exec, plan, width, element);
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::f32:
      return launch_source<DType::f32>(exec, plan, width, element);
    case DType::f16:
      return launch_source<DType::f16>(exec, plan, width, element);
#endif
    default:
      return false;
  }
}

}  // namespace octavo::cuda
