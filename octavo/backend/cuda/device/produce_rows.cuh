// A row of a norm or an activation in the registers of a block, on its way to memory or straight
// into codes. A thread has sixteen values side by side, so that blocks along the row are found by
// shuffles as in quantize_row_blocks.cu.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/device/decode_lane.cuh"
#include "octavo/backend/cuda/device/fast_element.cuh"
#include "octavo/backend/cuda/device/fast_scale.cuh"
#include "octavo/backend/cuda/device/produce.cuh"
#include "octavo/backend/cuda/device/reduce.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

inline constexpr int kRowThreads = 512;
inline constexpr int kRowValues = 16;  // of a thread, side by side

enum class Sink : std::uint8_t { f32, bf16, f16, row, block32, block128, given };

struct RowPlan {
  const unsigned char* from;
  unsigned char* to;
  unsigned char* scales;
  std::int64_t from_pitch, to_pitch, scale_pitch, scale_stride;
  std::int64_t cols;          // of what comes out
  std::int64_t gate_vectors;  // from the first half to the second
  Producer producer;
  FastScale scale;
  const float* inv_scale;
  float* amax;
  bool words_of_scales;  // four bytes of scales side by side, aligned
};

constexpr bool is_values(Sink sink) { return sink <= Sink::f16; }

// Eight of a weight or bias, of any of three types.
__device__ __forceinline__ void load_eight(const Matrix& from, std::int64_t vector,
                                           float (&to)[kVector]) {
  if (from.dtype == DType::f32) {
    const Raw<DType::f32> raw = load_raw<DType::f32>(from.data, vector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = any_nan_value<DType::f32>(raw, i);
  } else if (from.dtype == DType::bf16) {
    const Raw<DType::bf16> raw = load_raw<DType::bf16>(from.data, vector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = any_nan_value<DType::bf16>(raw, i);
  } else {
    const Raw<DType::f16> raw = load_raw<DType::f16>(from.data, vector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) to[i] = any_nan_value<DType::f16>(raw, i);
  }
}

// In place; two passes over registers, so that nothing cancels.
template <int kValues>
__device__ __forceinline__ void normalize(const RowPlan& plan, std::int64_t row, const bool* has,
                                          const std::int64_t* vectors, float (&x)[kValues]) {
  constexpr int kVectors = kValues / kVector;
  const Producer& producer = plan.producer;
  const auto n = static_cast<float>(plan.cols);
  float mean = 0.0F;
  if (producer.kind == ProducerKind::layer_norm) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum += x[i];  // zeros beyond the end
    mean = block_sum(sum) / n;
  }
  // What lies beyond the end stays zero. Choices are made for a vector, not for each of its values.
  float squares = 0.0F;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (!has[v]) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      float& value = x[v * kVector + i];
      value -= mean;
      squares += value * value;
    }
  }
  const float inv_std = 1.0F / sqrtf(block_sum(squares) / n + static_cast<float>(producer.epsilon));
  if (threadIdx.x == 0) {
    if (producer.mean != nullptr) producer.mean[row] = mean;
    if (producer.inv_std != nullptr) producer.inv_std[row] = inv_std;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (!has[v]) continue;
    float* const values = x + v * kVector;
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] *= inv_std;
    float more[kVector];
    if (producer.weight.data != nullptr) {
      load_eight(producer.weight, vectors[v], more);
      const float centre = producer.zero_centred ? 1.0F : 0.0F;  // adding zero changes nothing
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] *= centre + more[i];
    }
    if (producer.bias.data != nullptr) {
      load_eight(producer.bias, vectors[v], more);
#pragma unroll
      for (int i = 0; i < kVector; ++i) values[i] += more[i];
    }
  }
}

template <Sink kSink>
__device__ __forceinline__ void store_row(const RowPlan& plan, std::int64_t row, const bool* has,
                                          const std::int64_t* vectors, const float* x,
                                          float factor) {
  unsigned char* to = plan.to + row * plan.to_pitch;
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    if (!has[v]) continue;
    if constexpr (is_values(kSink)) {
      std::uint32_t bits[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float value = x[v * kVector + i];
        // Arithmetic forgets which NaN it was.
        bits[i] = value == value ? __float_as_uint(value) : kQuietNan;
      }
      constexpr DType kType = kSink == Sink::f32    ? DType::f32
                              : kSink == Sink::bf16 ? DType::bf16
                                                    : DType::f16;
      store_values<kType>(to, vectors[v], bits);
    }
  }
  if constexpr (!is_values(kSink)) {
    uint2 codes[2];
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      float u[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) u[i] = x[v * kVector + i] * factor;
      codes[v] = {hardware_four<false>(u[0], u[1], u[2], u[3]),
                  hardware_four<false>(u[4], u[5], u[6], u[7])};
    }
    if (has[0]) store_pair(to, vectors[0] / 2, codes[0], codes[1], true, has[1]);
  }
}

// What a kernel is made for: a norm, or one activation.
enum class Make : std::uint8_t { norm, gelu, gelu_tanh, relu, silu };
constexpr ProducerKind kind_of(Make make) {
  return make == Make::gelu        ? ProducerKind::gelu
         : make == Make::gelu_tanh ? ProducerKind::gelu_tanh
         : make == Make::silu      ? ProducerKind::silu
                                   : ProducerKind::relu;
}

// A block has a row, or (activations, unless the row has one scale) a part of it.
template <DType kSource, Make kMake, Sink kSink, int kPairs>
__global__ void __launch_bounds__(kRowThreads, kPairs == 1 ? 2 : 1)
    produce_rows_kernel(const __grid_constant__ RowPlan plan) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t first_pair = static_cast<std::int64_t>(blockIdx.y) * blockDim.x;
  const unsigned char* from = plan.from + row * plan.from_pitch;
  const std::int64_t end = plan.cols / kVector;
  float x[kPairs * kRowValues];
  bool has[kPairs * 2];
  std::int64_t vectors[kPairs * 2];
#pragma unroll
  for (int v = 0; v < kPairs * 2; ++v) {
    const std::int64_t pair =
        first_pair + static_cast<std::int64_t>(v / 2) * blockDim.x + threadIdx.x;
    vectors[v] = pair * 2 + v % 2;
    has[v] = vectors[v] < end;
    Raw<kSource> raw = {};
    if (has[v]) raw = load_raw<kSource>(from, vectors[v]);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[v * kVector + i] = any_nan_value<kSource>(raw, i);
  }
  if constexpr (kMake == Make::norm) {
    normalize(plan, row, has, vectors, x);
  } else {
#pragma unroll
    for (int v = 0; v < kPairs * 2; ++v) {
      Raw<kSource> gate = {};
      if (plan.producer.gated && has[v])
        gate = load_raw<kSource>(from, vectors[v] + plan.gate_vectors);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        float& value = x[v * kVector + i];
        value = activated(kind_of(kMake), value);
        if (plan.producer.gated) value *= any_nan_value<kSource>(gate, i);
      }
    }
  }

  std::uint32_t amax[kPairs] = {};
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
#pragma unroll
    for (int i = 0; i < kRowValues; ++i)
      amax[p] = max(amax[p], __float_as_uint(x[p * kRowValues + i]) & 0x7FFFFFFFu);
  }
  if (!is_values(kSink) && plan.amax != nullptr) {
    std::uint32_t most = amax[0];
#pragma unroll
    for (int p = 1; p < kPairs; ++p) most = max(most, amax[p]);
    most = block_amax(most);
    if (threadIdx.x == 0 && most != 0)
      atomicMax(reinterpret_cast<std::uint32_t*>(plan.amax), most > 0x7F800000u ? kQuietNan : most);
    __syncthreads();
  }
  unsigned char* scale_row = plan.scales + row * plan.scale_pitch;
  if constexpr (kSink == Sink::row) {
    std::uint32_t most = amax[0];
#pragma unroll
    for (int p = 1; p < kPairs; ++p) most = max(most, amax[p]);
    const MadeScale made = fast_tile_scale<FastKind::quotient>(plan.scale, block_amax(most));
    if (threadIdx.x == 0) *reinterpret_cast<std::uint32_t*>(scale_row) = made.bits;
    const float factor = made.poisoned ? __uint_as_float(kQuietNan) : made.factor;
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
      store_row<kSink>(plan, row, has + 2 * p, vectors + 2 * p, x + p * kRowValues, factor);
  } else if constexpr (kSink == Sink::block32 || kSink == Sink::block128) {
    constexpr int kLanes = (kSink == Sink::block32 ? 32 : 128) / kRowValues;
    constexpr FastKind kKind = kSink == Sink::block32 ? FastKind::e8m0 : FastKind::quotient;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      std::uint32_t most = amax[p];
#pragma unroll
      for (int step = 1; step < kLanes; step *= 2)
        most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
      const MadeScale made = fast_tile_scale<kKind>(plan.scale, most);
      const std::int64_t tile = vectors[2 * p] / (2 * kLanes);
      unsigned char* to = scale_row + tile * plan.scale_stride;
      std::uint32_t four = made.bits;
      if constexpr (kKind == FastKind::e8m0) {
#pragma unroll
        for (int i = 1; i < 4; ++i)
          four |= __shfl_down_sync(0xFFFFFFFFu, made.bits, i * kLanes) << (8 * i);
      }
      const bool words = kKind != FastKind::e8m0 || plan.words_of_scales;
      const int share = kKind == FastKind::e8m0 && words ? 4 * kLanes : kLanes;
      if (has[2 * p] && static_cast<int>(threadIdx.x) % share == 0) {
        if (words) {
          *reinterpret_cast<std::uint32_t*>(to) = four;
        } else {
          *to = static_cast<unsigned char>(made.bits);
        }
      }
      const float factor = made.poisoned ? __uint_as_float(kQuietNan) : made.factor;
      store_row<kSink>(plan, row, has + 2 * p, vectors + 2 * p, x + p * kRowValues, factor);
    }
  } else {
    float factor = 1.0F;
    if constexpr (kSink == Sink::given) {
      factor = *plan.inv_scale;
      if (row == 0 && first_pair == 0 && threadIdx.x == 0)
        *reinterpret_cast<float*>(plan.scales) = 1.0F / factor;
    }
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
      store_row<kSink>(plan, row, has + 2 * p, vectors + 2 * p, x + p * kRowValues, factor);
  }
}

}  // namespace octavo::cuda
