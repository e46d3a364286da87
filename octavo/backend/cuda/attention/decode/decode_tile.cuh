// A warp's tile of decode attention: sixteen keys by all rows of a group. Keys are the rows of
// mma.sync's left operand; the weights, transposed, are multiplied by their values. Bytes of K and
// V go from shared memory straight to the registers of the lane that multiplies them; which of them
// belongs to which index of a product follows from that, and sums do not care.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_loader.cuh"
#include "octavo/backend/cuda/attention/decode/decode_math.cuh"
#include "octavo/backend/cuda/attention/decode/decode_memory.cuh"

namespace octavo::cuda {

template <typename Element, int kDims, int kTiles, bool kTokenScales>
class DecodeTile {
 protected:
  using Shape = DecodeShape<Element, kDims, kTiles, kTokenScales>;
  static constexpr int kOfPiece = Shape::kOfPiece;
  // Weights of f16 are multiplied by 2^15, which leaves them normal down to 2^-29.
  static constexpr float kShift = Element::kF16 ? 15.0F : 0.0F;
  static constexpr float kLeastNormal = 0x1p-14F;

  __device__ __forceinline__ DecodeTile(const DecodePlan& plan, std::byte* memory)
      : plan_(plan),
        job_(plan.job),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32) {}

  __device__ __forceinline__ void clear_warp() {
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        top_[rt][h] = unit_[rt][h] = largest_[rt][h] = -HUGE_VALF;
        sum_[rt][h] = 0.0F;
      }
    poisoned_ = 0;
#pragma unroll
    for (int m = 0; m < Shape::kOutTiles; ++m)
#pragma unroll
      for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums_[m][rt][i] = 0.0F;
  }

  [[nodiscard]] __device__ __forceinline__ bool is_seen(int rt, int i, int key) const {
    const auto& row = memory_.of_row(8 * rt + 2 * (lane_ % 4) + i % 2);
    const int j = key + lane_ / 4 + i / 2 * 8;
    return j >= row.begin && j < row.end;
  }
  __device__ __forceinline__ void poison_tile(int key) {
    for (int rt = 0; rt < kTiles; ++rt)
      for (int i = 0; i < 4; ++i)
        if (is_seen(rt, i, key)) poisoned_ |= 1u << (2 * rt + i % 2);
  }

  __device__ __forceinline__ void multiply_tile(const DecodeStage<Shape>& stage, int key) {
    float scores[kTiles][4] = {};
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c) {
      const uint4 low = load_16(stage.key(0, c)), high = load_16(stage.key(1, c));
#pragma unroll
      for (int s = 0; s < Element::kStepsOfChunk; ++s) {
        const std::uint32_t a0 = Element::along(low, s, 0), a1 = Element::along(high, s, 0),
                            a2 = Element::along(low, s, 1), a3 = Element::along(high, s, 1);
#pragma unroll
        for (int rt = 0; rt < kTiles; ++rt) {
          const uint2 q =
              memory_.queries()[((c * Element::kStepsOfChunk + s) * kTiles + rt) * 32 + lane_];
          multiply_add_16<Element::kF16>(scores[rt], a0, a1, a2, a3, q.x, q.y);
        }
      }
    }
    finish_scores(stage, key, scores);
    std::uint32_t weights[kTiles][2];
    const bool is_edge = key < memory_.walk().span.every_begin ||
                         key + kDecodeTileKeys > memory_.walk().span.every_end;
    weigh(stage, scores, weights);
    if (is_edge && memory_.walk().span.differ && has_nonfinite(stage))
      add_seen_values(stage, key, weights);
    else
      add_values(stage, weights);
  }

  // Sums of products to scores in units of log2; -inf where a row does not see the key.
  __device__ __forceinline__ void finish_scores(const DecodeStage<Shape>& stage, int key,
                                                float (&scores)[kTiles][4]) {
    float scale[2] = {1.0F, 1.0F};
    if (kTokenScales && plan_.k.scales != nullptr) {
      scale[0] = load_shared(stage.scale(0, 0));
      scale[1] = load_shared(stage.scale(0, 1));
    }
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt) {
      const float factor[2] = {memory_.of_row(8 * rt + 2 * (lane_ % 4)).factor,
                               memory_.of_row(8 * rt + 2 * (lane_ % 4) + 1).factor};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[rt][i] *= factor[i % 2];
        if constexpr (kTokenScales) scores[rt][i] *= scale[i / 2];
      }
    }
    if (job_.soft_cap != 0.0) {
      const auto cap = static_cast<float>(job_.soft_cap * 1.4426950408889634);
#pragma unroll
      for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[rt][i] = soft_capped(scores[rt][i], cap);
    }
    if (key < memory_.walk().span.every_begin ||
        key + kDecodeTileKeys > memory_.walk().span.every_end) {
#pragma unroll
      for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!is_seen(rt, i, key)) scores[rt][i] = -HUGE_VALF;
    }
  }

  // The scale of a value as m 2^e, where 1/2 <= |m| < 1 or m says that the scale is no number.
  static __device__ __forceinline__ float split_scale(float scale, float& exponent) {
    const std::uint32_t bits = __float_as_uint(scale), field = bits >> 23 & 255u;
    exponent = 0.0F;
    if (field == 255u) return scale;
    exponent = static_cast<float>(static_cast<int>(max(field, 1u)) - 126);
    return field == 0u ? scale * 0x1p125F : __uint_as_float((bits & 0x807FFFFFu) | 0x3F000000u);
  }

  // Scores become weights; returned transposed, as the right operand: for its row a lane has keys
  // 2t, 2t + 1 and those eight later.
  __device__ __forceinline__ void weigh(const DecodeStage<Shape>& stage, float (&scores)[kTiles][4],
                                        std::uint32_t (&weights)[kTiles][2]) {
    float scale[2] = {1.0F, 1.0F}, exponent[2] = {0.0F, 0.0F};
    if (kTokenScales && plan_.v.scales != nullptr)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        scale[i] = split_scale(load_shared(stage.scale(1, i)), exponent[i]);
    bool rises = false;
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rises |= !(scores[rt][i] <= top_[rt][i % 2]);
        if constexpr (kTokenScales) rises |= !(scores[rt][i] + exponent[i / 2] <= unit_[rt][i % 2]);
      }
    if (__any_sync(0xFFFFFFFFu, rises)) raise(scores, exponent);
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt) {
      float weight[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float top = top_[rt][i % 2], from = top == -HUGE_VALF ? 0.0F : top;
        largest_[rt][i % 2] = fmaxf(largest_[rt][i % 2], scores[rt][i]);
        if constexpr (!kTokenScales) {
          weight[i] = exp2_fast(scores[rt][i] - from + kShift);
          continue;
        }
        const float unit = unit_[rt][i % 2], base = unit == -HUGE_VALF ? 0.0F : unit;
        weight[i] = scores[rt][i] == -HUGE_VALF
                        ? 0.0F
                        : exp2_fast(scores[rt][i] + exponent[i / 2] - base + kShift) * scale[i / 2];
      }
      const std::uint32_t pair0 = Element::kF16 ? f16_pair(weight[0], weight[1])
                                                : bf16_pair(weight[0], weight[1]),
                          pair1 = Element::kF16 ? f16_pair(weight[2], weight[3])
                                                : bf16_pair(weight[2], weight[3]);
      weights[rt][0] = transposed_8x8(pair0);
      weights[rt][1] = transposed_8x8(pair1);
      const float2 low = Element::kF16 ? floats_of_f16(pair0) : floats_of_bf16(pair0),
                   high = Element::kF16 ? floats_of_f16(pair1) : floats_of_bf16(pair1);
      const float rounded[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (!kTokenScales) {
          sum_[rt][i % 2] += rounded[i];
          continue;
        }
        // The part of its weight that a rounded product with a scale stands for.
        const float top = top_[rt][i % 2], from = top == -HUGE_VALF ? 0.0F : top;
        const float p = exp2_fast(scores[rt][i] - from + kShift);
        const bool is_normal = fabsf(weight[i]) >= kLeastNormal && fabsf(weight[i]) < HUGE_VALF;
        sum_[rt][i % 2] += is_normal ? p * rounded[i] * reciprocal(weight[i]) : p;
      }
    }
  }

  // Raises the maxima of rows to those of a tile. Scores that are no numbers poison their rows and
  // become -inf.
  __device__ __forceinline__ void raise(float (&scores)[kTiles][4], const float (&exponent)[2]) {
#pragma unroll
    for (int rt = 0; rt < kTiles; ++rt)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = h; i < 4; i += 2)
          if (!(scores[rt][i] < HUGE_VALF)) {
            poisoned_ |= 1u << (2 * rt + h);
            scores[rt][i] = -HUGE_VALF;
          }
        const float most = most_of_keys(fmaxf(scores[rt][h], scores[rt][h + 2]));
        const float top = fmaxf(top_[rt][h], ceilf(most));
        const float shrinks = step_down(top_[rt][h], top);
        sum_[rt][h] *= shrinks;
        top_[rt][h] = top;
        float of_sums = shrinks;
        if constexpr (kTokenScales) {
          const float higher =
              most_of_keys(fmaxf(scores[rt][h] + exponent[0], scores[rt][h + 2] + exponent[1]));
          const float unit = fmaxf(unit_[rt][h], ceilf(higher));
          of_sums = step_down(unit_[rt][h], unit);
          unit_[rt][h] = unit;
        }
#pragma unroll
        for (int m = 0; m < Shape::kOutTiles; ++m) {
          sums_[m][rt][h] *= of_sums;
          sums_[m][rt][h + 2] *= of_sums;
        }
      }
  }

  // Words of a lane's piece of V: keys 2t, 2t + 1 and those eight later.
  __device__ __forceinline__ void load_piece(const DecodeStage<Shape>& stage, int piece,
                                             std::uint32_t (&words)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Shape::kPieceBytes == 16) {
        const uint4 all = load_16(stage.value(i, piece));
        words[i][0] = all.x, words[i][1] = all.y, words[i][2] = all.z, words[i][3] = all.w;
      } else {
        const uint2 all = load_8(stage.value(i, piece));
        words[i][0] = all.x, words[i][1] = all.y;
      }
    }
  }

  __device__ __forceinline__ void add_values(const DecodeStage<Shape>& stage,
                                             const std::uint32_t (&weights)[kTiles][2]) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      std::uint32_t words[4][4], first[kOfPiece], second[kOfPiece];
      load_piece(stage, p, words);
#pragma unroll
      for (int w = 0; w < Shape::kPieceBytes / 4; ++w) {
        Element::across(words[0][w], words[1][w], first + w * Element::kOfWord);
        Element::across(words[2][w], words[3][w], second + w * Element::kOfWord);
      }
#pragma unroll
      for (int m = 0; m < kOfPiece / 2; ++m)
#pragma unroll
        for (int rt = 0; rt < kTiles; ++rt)
          multiply_add_16<Element::kF16>(sums_[p * kOfPiece / 2 + m][rt], first[2 * m],
                                         first[2 * m + 1], second[2 * m], second[2 * m + 1],
                                         weights[rt][0], weights[rt][1]);
    }
  }

  static __device__ __forceinline__ float2 floats_of(std::uint32_t pair) {
    return Element::kF16 ? floats_of_f16(pair) : floats_of_bf16(pair);
  }

  // Is anything in the tile of V not finite? Then what a row does not see must not be multiplied,
  // not even by zero.
  __device__ __forceinline__ bool has_nonfinite(const DecodeStage<Shape>& stage) const {
    bool bad = false;
#pragma unroll 1
    for (int p = 0; p < Shape::kPieces; ++p) {
      std::uint32_t words[4][4], pairs[Element::kOfWord];
      load_piece(stage, p, words);
#pragma unroll
      for (int w = 0; w < Shape::kPieceBytes / 4; ++w)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          Element::across(words[i][w], words[i + 1][w], pairs);
#pragma unroll
          for (int e = 0; e < Element::kOfWord; ++e) {
            const float2 both = floats_of(pairs[e]);
            bad |= !(isfinite(both.x) && isfinite(both.y));
          }
        }
    }
    if (kTokenScales && plan_.v.scales != nullptr) {
      bad |= !isfinite(load_shared(stage.scale(1, 0)));
      bad |= !isfinite(load_shared(stage.scale(1, 1)));
    }
    return __any_sync(0xFFFFFFFFu, bad);
  }

  // Key by key, for rows alone that see it. Rare: other lanes' parts of V come by shuffles.
  __device__ __forceinline__ void add_seen_values(const DecodeStage<Shape>& stage, int key,
                                                  const std::uint32_t (&weights)[kTiles][2]) {
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      std::uint32_t words[4][4], first[kOfPiece], second[kOfPiece];
      load_piece(stage, p, words);
#pragma unroll
      for (int w = 0; w < Shape::kPieceBytes / 4; ++w) {
        Element::across(words[0][w], words[1][w], first + w * Element::kOfWord);
        Element::across(words[2][w], words[3][w], second + w * Element::kOfWord);
      }
#pragma unroll 1
      for (int j = 0; j < kDecodeTileKeys; ++j) {
        const int owner = lane_ / 4 * 4 + j % 8 / 2;
#pragma unroll
        for (int rt = 0; rt < kTiles; ++rt) {
          float weight[2];
          bool seen[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int row = 2 * (lane_ % 4) + h;
            const float2 both = floats_of(__shfl_sync(
                0xFFFFFFFFu, j < 8 ? weights[rt][0] : weights[rt][1], row * 4 + j % 8 / 2));
            weight[h] = j % 2 == 0 ? both.x : both.y;
            const auto& of = memory_.of_row(8 * rt + row);
            seen[h] = key + j >= of.begin && key + j < of.end;
          }
#pragma unroll
          for (int e = 0; e < kOfPiece; ++e) {
            const float2 both =
                floats_of(__shfl_sync(0xFFFFFFFFu, j < 8 ? first[e] : second[e], owner));
            const float value = j % 2 == 0 ? both.x : both.y;
            float(&to)[4] = sums_[p * kOfPiece / 2 + e / 2][rt];
#pragma unroll
            for (int h = 0; h < 2; ++h)
              if (seen[h]) to[e % 2 * 2 + h] += weight[h] * value;
          }
        }
      }
    }
  }

  const DecodePlan& plan_;
  const AttentionJob& job_;
  const DecodeMemory<Shape> memory_;
  const int lane_, warp_;
  std::uint32_t poisoned_ = 0;
  float top_[kTiles][2], unit_[kTiles][2], sum_[kTiles][2], largest_[kTiles][2];
  float sums_[Shape::kOutTiles][kTiles][4];
};

}  // namespace octavo::cuda
