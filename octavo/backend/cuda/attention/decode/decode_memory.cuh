// What lies in a decode block's shared memory behind the stages.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_rows.cuh"
#include "octavo/backend/cuda/attention/decode/decode_schedule.cuh"

namespace octavo::cuda {

template <typename Shape>
class DecodeMemory {
  static constexpr int kThreads = Shape::kThreads, kRows = Shape::kRows,
                       kKeysOfBlock = Shape::kKeysOfBlock;

 public:
  __device__ __forceinline__ explicit DecodeMemory(std::byte* memory) : memory_(memory) {}

  struct OfRow {
    float factor = 0.0F;  // from sums of products to scores
    int begin = 0, end = 0;
    int unused = 0;
  };

  // Shared memory behind the stages.
  [[nodiscard]] __device__ __forceinline__ std::byte* behind() const {
    return memory_ + Shape::kStages * Shape::kStageBytes * kThreads;
  }
  [[nodiscard]] __device__ __forceinline__ uint2* queries() const {
    return reinterpret_cast<uint2*>(behind());
  }
  [[nodiscard]] __device__ __forceinline__ float* sums_of_row(int row) const {
    return reinterpret_cast<float*>(behind() + Shape::kQueryBytes) + row * Shape::kSumPitch;
  }
  // Of a warp; those of all warps together are warp kWarps'.
  [[nodiscard]] __device__ __forceinline__ DecodeState& state(int warp, int row) const {
    return *reinterpret_cast<DecodeState*>(
        reinterpret_cast<float*>(behind() + Shape::kQueryBytes + Shape::kSumBytes) +
        (warp * kRows + row) * kDecodeStateFloats);
  }
  [[nodiscard]] __device__ __forceinline__ OfRow& of_row(int row) const {
    return reinterpret_cast<OfRow*>(behind() + Shape::kQueryBytes + Shape::kSumBytes +
                                    Shape::kStateBytes)[row];
  }
  // Where the block is: the same for all its threads, which have no registers to spare.
  [[nodiscard]] __device__ __forceinline__ DecodeWalk<kKeysOfBlock>& walk() const {
    return *reinterpret_cast<DecodeWalk<kKeysOfBlock>*>(behind() + Shape::kQueryBytes +
                                                        Shape::kSumBytes + Shape::kStateBytes +
                                                        Shape::kRowBytesOfHead);
  }
  [[nodiscard]] __device__ __forceinline__ int* scratch() const {
    return reinterpret_cast<int*>(behind() + Shape::kQueryBytes + Shape::kSumBytes +
                                  Shape::kStateBytes + Shape::kRowBytesOfHead + Shape::kWalkBytes);
  }
  [[nodiscard]] __device__ __forceinline__ SharedAddress stage(int stage) const {
    return shared_address(memory_) + stage * Shape::kStageBytes * kThreads;
  }

 private:
  std::byte* memory_;
};

}  // namespace octavo::cuda
