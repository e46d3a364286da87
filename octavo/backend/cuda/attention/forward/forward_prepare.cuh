// Operands of the forward kernels that are not as their caller has them: V transposed in fragment
// order (`fast`), or as dense bf16; scales of keys in fragment order. Keys beyond the length of a
// batch become zeros.
#pragma once

#include <cuda_bf16.h>

#include "octavo/backend/cuda/attention/forward/forward_rows.cuh"
#include "octavo/backend/cuda/attention/general_rows.cuh"
#include "octavo/backend/cuda/attention/half_pairs.cuh"

namespace octavo::cuda {

inline constexpr int kPrepareThreads = 256;

struct PrepareOperand {
  AttentionOperand from{};
  std::int64_t heads = 0, padded_rows = 0;  // `to` has so many rows a head
  const std::int64_t* lengths = nullptr;
  void* to = nullptr;
  bool vectors = false;  // rows of codes are 16-byte aligned

  [[nodiscard]] __device__ __forceinline__ const unsigned char* row(const Matrix& matrix,
                                                                    std::int64_t batch,
                                                                    std::int64_t head,
                                                                    std::int64_t at) const {
    return static_cast<const unsigned char*>(matrix.data) + batch * from.batch_pitch +
           head * from.head_pitch + at * matrix.row_pitch;
  }
};

// A block transposes 128 keys of a head: [keys, depth] codes to [depth, padded keys].
template <int kDepth>
__global__ void __launch_bounds__(kPrepareThreads)
    fragment_values_kernel(const __grid_constant__ PrepareOperand job) {
  constexpr int kKeys = 128, kWords = kDepth / 4;
  __shared__ alignas(16) std::uint32_t words[kKeys * kWords];
  const std::int64_t batch = blockIdx.z, head = blockIdx.y;
  const Matrix& codes = job.from.first.quantized.codes;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kKeys,
                     length = job.lengths != nullptr ? job.lengths[batch] : codes.rows;
  const int thread = static_cast<int>(threadIdx.x), cols = static_cast<int>(codes.cols);
  // Groups of four words are exchanged by their sixteen rows, so that banks do not conflict below.
  for (int i = thread; i < kKeys * kWords / 4; i += kPrepareThreads) {
    const int key = i / (kWords / 4), col = i % (kWords / 4) * 16;
    uint4 four{};
    if (first + key < length && col < cols) {
      if (job.vectors) {
        four = load<uint4>(job.row(codes, batch, head, first + key) + col);
      } else {
        auto* const bytes = reinterpret_cast<unsigned char*>(&four);
        for (int c = 0; c < 16 && col + c < cols; ++c)
          bytes[c] = job.row(codes, batch, head, first + key)[(col + c) * codes.col_stride];
      }
    }
    *reinterpret_cast<uint4*>(words + key * kWords +
                              ((i % (kWords / 4)) ^ (key / 16 % (kWords / 4))) * 4) = four;
  }
  __syncthreads();
  auto* const to = static_cast<unsigned char*>(job.to) +
                   (batch * job.heads + head) * cols * job.padded_rows + first;
  for (int i = thread; i < kKeys / 16 * kWords; i += kPrepareThreads) {
    const int group = i % (kKeys / 16), word = i / (kKeys / 16);
    const std::uint32_t* const from =
        words + group * 16 * kWords + ((word / 4) ^ (group % (kWords / 4))) * 4 + word % 4;
    uint4 out[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const std::uint32_t a = from[2 * part * kWords], b = from[(2 * part + 1) * kWords],
                          c = from[(2 * part + 8) * kWords], d = from[(2 * part + 9) * kWords];
      const std::uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362),
                          cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
      (&out[0].x)[part] = __byte_perm(ab_low, cd_low, 0x5410);
      (&out[1].x)[part] = __byte_perm(ab_low, cd_low, 0x7632);
      (&out[2].x)[part] = __byte_perm(ab_high, cd_high, 0x5410);
      (&out[3].x)[part] = __byte_perm(ab_high, cd_high, 0x7632);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (word * 4 + c < cols)
        *reinterpret_cast<uint4*>(to + (word * 4 + c) * job.padded_rows + group * 16) = out[c];
  }
}

// To dense bf16 [batches, heads, rows, cols]: codes without their scales, or values rounded. A
// thread has eight neighbours; cols is a multiple of eight.
__global__ void __launch_bounds__(kPrepareThreads)
    to_bf16_kernel(const __grid_constant__ PrepareOperand job) {
  const Matrix of = job.from.first.elements();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kPrepareThreads + threadIdx.x,
                     per_row = of.cols / 8, row = at / per_row, col = at % per_row * 8;
  if (row >= of.rows) return;
  const std::int64_t batch = blockIdx.z, head = blockIdx.y;
  const GemmOperand there = job.from.at(batch, head);
  std::uint32_t words[4] = {};
  if (job.lengths == nullptr || row < job.lengths[batch]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const std::int64_t c = col + 2 * i + e;
        if (there.is_quantized())
          pair[e] = static_cast<float>(decode(of.format, *element(there.quantized.codes, row, c)));
        else
          load_number(there.values, row, c, true, pair[e]);
      }
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(pair[1]), "f"(pair[0]));
    }
  }
  auto* const to = static_cast<unsigned char*>(job.to) +
                   (((batch * job.heads + head) * of.rows + row) * of.cols + col) * 2;
  *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
}
// The same of e4m3 codes whose rows are 16-byte aligned; a thread has sixteen.
__global__ void __launch_bounds__(kPrepareThreads)
    e4m3_to_bf16_kernel(const __grid_constant__ PrepareOperand job) {
  const Matrix& of = job.from.first.quantized.codes;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kPrepareThreads + threadIdx.x,
                     per_row = of.cols / 16, row = at / per_row, col = at % per_row * 16;
  if (row >= of.rows) return;
  const std::int64_t batch = blockIdx.z, head = blockIdx.y;
  uint4 codes{};
  if (job.lengths == nullptr || row < job.lengths[batch])
    codes = load<uint4>(job.row(of, batch, head, row) + col);
  uint4 out[2];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const auto two = static_cast<std::uint16_t>((&codes.x)[i / 2] >> (i % 2 * 16));
    const float2 pair = pair_values(pair_of_e4m3(two));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"((&out[i / 4].x)[i % 4]) : "f"(pair.y), "f"(pair.x));
  }
  auto* const to = static_cast<unsigned char*>(job.to) +
                   (((batch * job.heads + head) * of.rows + row) * of.cols + col) * 2;
  reinterpret_cast<uint4*>(to)[0] = out[0];
  reinterpret_cast<uint4*>(to)[1] = out[1];
}

// Scales of keys [batches, heads, padded rows] in fragment order, a block for each head. In f16:
// relative to the largest finite magnitude of the head, which goes to most[head].
template <typename Scale>
__global__ void __launch_bounds__(1024)
    key_scales_kernel(const __grid_constant__ PrepareOperand job, ForwardScales plain,
                      float* most) {
  __shared__ float parts[32];
  const std::int64_t batch = blockIdx.y, head = blockIdx.x, at = batch * job.heads + head;
  const QuantizedMatrix from = job.from.at(batch, head).quantized;
  const std::int64_t length = job.lengths != nullptr ? job.lengths[batch] : from.codes.rows;
  const float* const in_place = plain.at(static_cast<int>(batch), static_cast<int>(head));
  const auto scale_at = [&](std::int64_t row) {
    return plain.first != nullptr ? in_place[row * plain.step] : scale_of_row(from, row);
  };
  float largest = 0.0F;
  if constexpr (sizeof(Scale) == 2) {
    for (std::int64_t row = threadIdx.x; row < length; row += blockDim.x) {
      const float scale = fabsf(scale_at(row));
      if (scale < HUGE_VALF) largest = fmaxf(largest, scale);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = largest;
    __syncthreads();
    largest = parts[threadIdx.x % 32];
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    if (threadIdx.x == 0) most[at] = largest;
  }
  auto* const to = static_cast<Scale*>(job.to) + at * job.padded_rows;
  for (std::int64_t place = threadIdx.x; place < job.padded_rows; place += blockDim.x) {
    const std::int64_t row =
        (place & ~std::int64_t{15}) | fragment_key(static_cast<int>(place & 15));
    const float scale = row < length ? scale_at(row) : 0.0F;
    if constexpr (sizeof(Scale) == 2)
      to[place] = __float2half_rn(largest > 0.0F ? scale / largest : scale);
    else
      to[place] = scale;
  }
}

}  // namespace octavo::cuda
