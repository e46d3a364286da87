// Launches the decode kernel of a type of elements by head size, rows of a head and kind of scales.
#pragma once

#include <algorithm>

#include "octavo/backend/cuda/attention/decode/decode_join.cuh"
#include "octavo/backend/cuda/attention/decode/decode_kernel.cuh"
#include "octavo/backend/cuda/attention/decode/decode_launch.h"
#include "octavo/backend/cuda/hopper/pdl_launch.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

template <typename Element, int kDims, int kTiles, bool kTokenScales>
DecodeLaunch decode_launch_of() {
  using Shape = DecodeShape<Element, kDims, kTiles, kTokenScales>;
  return {.row_tiles = kTiles,
          .keys_of_block = Shape::kKeysOfBlock,
          .blocks_of_multiprocessor = Shape::kBlocksOfMultiprocessor,
          .partial_floats = decode_partial_floats(Shape::kRows, kDims),
          .run = [](const Exec& exec, const DecodePlan& plan) {
            constexpr auto* kKernel =
                &attention_decode_kernel<Element, kDims, kTiles, kTokenScales>;
            OCTAVO_CUDA_CHECK(cudaFuncSetAttribute(
                kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes));
            kKernel<<<static_cast<unsigned>(plan.blocks), Shape::kThreads, Shape::kSharedBytes,
                      stream_of(exec)>>>(plan);
            OCTAVO_CUDA_LAUNCHED("attention_decode_kernel");
            const std::int64_t heads = plan.job.batches * plan.job.kv_heads * plan.groups;
            launch_pdl(exec, blocks_for(heads, 1), kJoinThreads,
                       &attention_decode_join_kernel<Shape::kKeysOfBlock, kDims, kTiles>, plan);
          }};
}

#ifdef OCTAVO_CUDA_ONE_CONFIG
template <typename Element, bool kManyRows, bool kTokenScales>
DecodeLaunch decode_launch_for(const DecodeKind&) {
  return decode_launch_of<Element, 128, 1, kTokenScales>();
}
#else
template <typename Element, int kTiles, bool kTokenScales>
DecodeLaunch decode_launch_of(const DecodeKind& kind) {
  if (kind.dims <= 64) return decode_launch_of<Element, 64, kTiles, kTokenScales>();
  if (kind.dims <= 128) return decode_launch_of<Element, 128, kTiles, kTokenScales>();
  // Twice the sums of a row: half the rows.
  return decode_launch_of<Element, 256, std::min(kTiles, 2), kTokenScales>();
}

// kManyRows: are there kernels for more than eight rows of a KV head at a time? Without them each
// eight rows read the head for themselves.
template <typename Element, bool kManyRows, bool kTokenScales>
DecodeLaunch decode_launch_for(const DecodeKind& kind) {
  if constexpr (kManyRows) {
    if (kind.rows > 16) return decode_launch_of<Element, 4, kTokenScales>(kind);
    if (kind.rows > 8) return decode_launch_of<Element, 2, kTokenScales>(kind);
  }
  return decode_launch_of<Element, 1, kTokenScales>(kind);
}
#endif

}  // namespace octavo::cuda
