// Sizes of a decode kernel, and its shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_elements.cuh"
#include "octavo/backend/cuda/attention/decode/decode_plan.h"

namespace octavo::cuda {

// kDims: the larger head size, rounded up. kTiles: of eight query rows each. kTokenScales: K and V
// have scales along the keys.
template <typename Element, int kDims, int kTiles, bool kTokenScales>
struct DecodeShape {
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kRowBytes = kDims * Element::kBytes;
  // Of a row of K, four lanes take 16 bytes each at a time; of a row of V, eight lanes.
  static constexpr int kChunks = kRowBytes / 64;
  static constexpr int kPieceBytes = std::min(16, kRowBytes / 8);
  static constexpr int kPieces = kRowBytes / 8 / kPieceBytes;
  static constexpr int kOfPiece = kPieceBytes / Element::kBytes;  // elements
  static constexpr int kSteps = kDims / 16;                       // along the depth
  static constexpr int kOutTiles = kDims / 16;

  // Of a thread and a tile: two rows of K, four of V, and the warp's 32 scales.
  static constexpr int kKeyBytes = 2 * kChunks * 16, kValueBytes = 4 * kPieces * kPieceBytes,
                       kScaleBytes = kTokenScales ? 4 : 0;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes + kScaleBytes;  // of a thread
  static constexpr int kWarps = kStageBytes > 600 ? 2 : kStageBytes > 150 ? 4 : 8;
  static constexpr int kThreads = 32 * kWarps, kKeysOfBlock = kDecodeTileKeys * kWarps;

  // Behind the stages: Q, in the order of mma.sync's operand; sums of the warps; states of rows.
  static constexpr int kQueryBytes = kSteps * kTiles * 32 * 8;
  static constexpr int kSumPitch = kDims + 8;
  static constexpr int kSumBytes = kRows * kSumPitch * 4;
  static constexpr int kStateBytes = (kWarps + 1) * kRows * kDecodeStateFloats * 4;
  static constexpr int kRowBytesOfHead = kRows * 16;
  static constexpr int kWalkBytes = 64;
  static constexpr int kOtherBytes =
      kQueryBytes + kSumBytes + kStateBytes + kRowBytesOfHead + kWalkBytes + kThreads * 4;
  // As many thread blocks as registers and two stages allow.
  static constexpr bool kIsSmall = kTiles * kDims <= 128;  // sums of a thread
  static constexpr int kBlocksOfMultiprocessor = kWarps == 2 || kStageBytes > 300
                                                     ? 1
                                                     : (kWarps == 8 ? 1 : 2) + (kIsSmall ? 1 : 0);
  static constexpr int kMostBytes = (227 << 10) / kBlocksOfMultiprocessor - 1024;
  static constexpr int kStages = std::min(6, (kMostBytes - kOtherBytes) / (kStageBytes * kThreads));
  static_assert(kStages >= 2);
  static constexpr int kSharedBytes = kStages * kStageBytes * kThreads + kOtherBytes;
};

}  // namespace octavo::cuda
