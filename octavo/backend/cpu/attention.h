// How CPU backends attend. A strip of query rows goes through the keys tile by tile; what is worked
// on is turned, [keys][queries], so that the softmax goes down columns in vector lanes and its
// result is the panel that the second product wants, without a transpose. What differs between
// instruction sets is three innermost loops: scores, softmax, and the sum of weighted values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cpu/gemm.h"

namespace octavo::cpu {

// Scores of a tile of keys become weights, down the columns of a strip.
struct SoftmaxJob {
  float* scores;       // [keys][strip], in units of log2; -inf where a row does not see a key
  std::byte* weights;  // [keys][strip] of the lanes that are multiplied; may be `scores`
  std::int64_t keys;   // a multiple of eight
  std::int64_t run;    // so many weights are summed before sums go to f32, as values are
  // [strip] each, and updated: the largest score, NaN once there was one; what exponents are taken
  // from, which is that rounded up to an integer; and the sum of the weights as they are stored.
  float *top, *base, *sum;
  float* rescale;  // [strip]: what sums so far are to be multiplied by, a power of two
};

struct AttentionMethod {
  const char* name = "";  // for people
  // Scores: A is eight keys, B is queries; the strip is a multiple of its columns. Lanes are f32
  // (sums are added to), or two int8 limbs (sums are written; see attention_limbs.h).
  Lane score_lane = Lane::f32;
  TileKernel score{};
  // Weighted values: A is channels of V, B the strip's weights. Lanes are f32, or f16: then runs of
  // kWeightRun products are summed in f16 and go, times *a_scale, to f32.
  Lane weigh_lane = Lane::f32;
  TileKernel weigh{};
  // Returns whether any factor of `rescale` is not 1.
  bool (*softmax)(const SoftmaxJob&) = nullptr;
  float weight_factor = 1.0F;  // of a weight of 1, a power of two
  std::int64_t tile_keys = 32;
  // Words of four bytes, as GemmMethod has it; null: the driver's.
  void (*interleave)(const std::byte* const* rows, int count, std::int64_t words,
                     std::byte* panel) = nullptr;
  // f32 to f16; where lanes are f16.
  void (*narrow)(const float* values, std::byte* lanes, std::int64_t n) = nullptr;

  [[nodiscard]] constexpr int strip() const { return weigh.cols; }
};

inline constexpr int kMostStrip = 32;
inline constexpr std::int64_t kMostTileKeys = 64;
inline constexpr std::int64_t kWeightRun = 32;
// Lanes of V in f16 are at most this, weights at most 256, and a run of their products is finite.
inline constexpr float kMostValueLane = 7.0F;
inline constexpr float kWeightFactor = 256.0F;
static_assert(kWeightRun * kMostValueLane * kWeightFactor < 65504);

// Head sizes of Q and of V that are offered.
inline constexpr std::int64_t kMostHeadSize = 1024;

// What a fast kernel may do at all: not what only the definition does.
inline bool is_fast_attention(const AttentionJob& job) {
  return job.values != DType::f64 && job.p != AttentionP::f64 &&
         job.p != AttentionP::fp8_normalized && job.q.first.cols() <= kMostHeadSize &&
         job.v.first.cols() <= kMostHeadSize;
}
// P has ten bits or fewer after the first one: f16 keeps it.
inline bool is_short_p(const AttentionJob& job) {
  return job.p == AttentionP::bf16 || job.p == AttentionP::fp8 || job.p == AttentionP::fp8_split;
}

}  // namespace octavo::cpu
