#include "octavo/backend/cpu/attention/attention_decode_split.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/backend/cpu/attention/attention_decode.h"
#include "octavo/backend/cpu/attention/attention_decode_score.h"
#include "octavo/backend/cpu/attention/attention_soft_cap.h"
#include "octavo/backend/cpu/attention/attention_softmax.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/narrow.h"

namespace octavo::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Eight independent lanes, which compilers vectorise; n is a multiple of that.
constexpr std::int64_t kSide = 8;
static_assert(kDecodeLanes % kSide == 0 && kDecodeKeys % kDecodeLanes == 0);

// The largest value, NaN where there is one. Compares integers that are ordered like the numbers,
// which vectorises: NaN lies outside of the infinities there.
float largest_of(const float* values, std::int64_t n) {
  constexpr std::int32_t kMax = 0x7F800000, kLeast = ~kMax;
  std::int32_t most = kLeast, least = kMax;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::int32_t>(values[i]);
    const std::int32_t place = bits ^ ((bits >> 31) & 0x7FFFFFFF);
    most = std::max(most, place);
    least = std::min(least, place);
  }
  if (most > kMax || least < kLeast) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(most ^ ((most >> 31) & 0x7FFFFFFF));
}

float sum_of(const float* values, std::int64_t n) {
  float sums[kSide] = {};
  for (std::int64_t i = 0; i < n; i += kSide)
    for (std::int64_t j = 0; j < kSide; ++j) sums[j] += values[i + j];
  float sum = 0.0F;
  for (const float one : sums) sum += one;
  return sum;
}

// Raises the running maximum of a row to this score: returns the factor for its sums so far.
float raised(DecodePartial& state, float largest) {
  float rescale = 1.0F;
  const SoftmaxJob job{.scores = nullptr,
                       .weights = nullptr,
                       .keys = 0,
                       .run = 0,
                       .top = &state.top,
                       .base = &state.base,
                       .sum = &state.sum,
                       .rescale = &rescale};
  update_running_max<1>(job, &largest);
  return rescale;
}

float squares_of(const float* values, std::int64_t n) {
  float sums[kSide] = {};
  for (std::int64_t i = 0; i < n; i += kSide)
    for (std::int64_t j = 0; j < kSide; ++j) sums[j] += values[i + j] * values[i + j];
  return sum_of(sums, kSide);
}

// DecodeSteps::weights.
float weights_from(float* scores, std::int64_t n, float from) {
  for (std::int64_t i = 0; i < n; ++i) scores[i] = exp2_of(scores[i] - from);
  return squares_of(scores, n);
}

class KeySplit {
 public:
  KeySplit(const Isa& isa, const AttentionMethod& method, const AttentionJob& job,
           const DecodeSplit& split)
      : isa_(isa),
        method_(method),
        job_(job),
        split_(split),
        v_operand_(job.v.at(split.batch, split.kv_head)),
        kernels_(*method.decode_kernels(v_operand_)),
        scores_(isa, key_kernels(), job, split.batch, split.kv_head, split.only != nullptr),
        together_(std::min(kernels_.queries, key_kernels().queries)),
        v_(isa, v_operand_, job.values, FactoredScales::row) {}

  void run(float* partials) {
    const std::int64_t rows = decode_rows_of_head(job_), step = decode_row_floats(job_);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (!takes_part(r)) continue;
      std::fill_n(partials + r * step, step, 0.0F);
      *reinterpret_cast<DecodePartial*>(partials + r * step) = DecodePartial{};
      scores_.pack_query(r);
    }
    for (std::int64_t key = split_.first; key < split_.last; key += kDecodeKeys) {
      const std::int64_t keys = std::min(kDecodeKeys, split_.last - key);
      scores_.select_keys(key, keys);
      find_scales(key, keys);
      // Rows that see the same keys are processed together: one query of each head that shares the
      // keys (GQA).
      for (std::int64_t r = 0; r < rows;) {
        if (!takes_part(r)) {
          ++r;
          continue;
        }
        const DecodeSeen seen = seen_of(r, key, keys);
        int count = 1;
        while (count < together_ && r + count < rows && takes_part(r + count) &&
               seen_of(r + count, key, keys) == seen)
          ++count;
        if (seen.begin < seen.end) attend(r, count, key, keys, seen, partials + r * step);
        r += count;
      }
    }
    for (std::int64_t r = 0; r < rows; ++r)
      if (takes_part(r))
        reinterpret_cast<DecodePartial*>(partials + r * step)->norms =
            static_cast<float>(scores_.norms(r));
  }

 private:
  [[nodiscard]] const DecodeKernels& key_kernels() const {
    return *method_.decode_kernels(job_.k.at(split_.batch, split_.kv_head));
  }
  [[nodiscard]] bool takes_part(std::int64_t r) const {
    return split_.only == nullptr || split_.only[r] != 0;
  }

  [[nodiscard]] DecodeSeen seen_of(std::int64_t r, std::int64_t key, std::int64_t keys) const {
    const AttentionJob::Keys sees = job_.keys_of(split_.batch, r % job_.queries);
    if (sees.begin >= key + keys || sees.end <= key || sees.begin >= sees.end) return {0, 0};
    return {std::max<std::int64_t>(0, sees.begin - key), std::min(keys, sees.end - key)};
  }

  // Finds the scales of rows of V, and their inverses: 0 for scales that are zero or too small to
  // be inverted.
  void find_scales(std::int64_t key, std::int64_t keys) {
    v_.scales(key, keys, v_scale_);
    const std::int64_t whole = round_up(keys, kDecodeLanes);
    std::fill(v_scale_ + keys, v_scale_ + whole, 1.0F);
    if (kernels_.packed_type != PackedType::f16) return;
    for (std::int64_t i = 0; i < whole; ++i) {
      const std::uint32_t zero = mask_of(std::abs(v_scale_[i]) < 0x1p-126F);
      v_inverse_[i] =
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.0F / v_scale_[i]) & ~zero);
    }
  }

  // Rows [r, r + count), whose partial results are contiguous.
  void attend(std::int64_t r, int count, std::int64_t key, std::int64_t keys,
              const DecodeSeen& seen, float* partials) {
    const std::int64_t step = decode_row_floats(job_);
    alignas(64) float score[kMaxDecodeRows][kDecodeKeys];
    alignas(64) std::byte packed[kMaxDecodeRows][kDecodeKeys * 4];
    DecodeWeights weights[kMaxDecodeRows];
    scores_.score(r, count, seen, score);
    for (int g = 0; g < count; ++g) {
      if (job_.soft_cap != 0.0) apply_soft_cap(SoftCap(job_.soft_cap), score[g], keys);
      softmax(score[g], keys, seen, partials + g * step);
      weights[g] = pack_weights(score[g], keys, seen, packed[g], partials + g * step);
    }
    weigh(score, weights, count, key, seen);
  }

  // Rows of V that are not seen are not read: NaN times a weight of zero would be NaN.
  void weigh(const float (*score)[kDecodeKeys], DecodeWeights* weights, int count, std::int64_t key,
             const DecodeSeen& seen) const {
    const Matrix& v = v_operand_.elements();
    alignas(64) float before[kMaxDecodeRows][kMaxHeadSize];
    DecodeWeights of_seen[kMaxDecodeRows];
    for (int g = 0; g < count; ++g) {
      of_seen[g] = weights[g];
      of_seen[g].packed += seen.begin * packed_bytes(kernels_.packed_type);
      std::copy_n(weights[g].sums, v.cols, before[g]);
    }
    if (kernels_.weigh(
            {element(v, key + seen.begin, 0), v.row_pitch, seen.end - seen.begin, v.cols}, of_seen,
            count))
      return;
    for (int g = 0; g < count; ++g) {
      std::copy_n(before[g], v.cols, weights[g].sums);
      if (count > 1) {  // other rows may be finite
        weigh(score + g, weights + g, 1, key, seen);
      } else {
        weigh_nonfinite(score[g], key, seen, weights[g].sums);
      }
    }
  }

  // The online softmax along one row. Scores become weights.
  void softmax(float* score, std::int64_t keys, const DecodeSeen& seen, float* partial) const {
    auto& state = *reinterpret_cast<DecodePartial*>(partial);
    const std::int64_t whole = round_up(keys, kDecodeLanes);
    std::fill(score, score + seen.begin, -kInfinity);
    std::fill(score + seen.end, score + whole, -kInfinity);
    const DecodeSteps* const steps = method_.decode_steps;
    const float largest =
        steps != nullptr ? steps->largest(score, whole) : largest_of(score, whole);
    const float rescale = raised(state, largest);
    float* const sums = partial + kDecodeHeader;
    if (rescale != 1.0F)
      for (std::int64_t e = 0; e < job_.v.first.cols(); ++e) sums[e] *= rescale;
    const float from = origin(state.base), squares = steps != nullptr
                                                         ? steps->weights(score, whole, from)
                                                         : weights_from(score, whole, from);
    state.sum *= rescale;
    state.weight_squares = state.weight_squares * rescale * rescale + squares;
  }

  // Packs weights times the scales of their rows of V, rounded to the packed type; and adds up the
  // weights as rounded.
  DecodeWeights pack_weights(const float* weight, std::int64_t keys, const DecodeSeen& seen,
                             std::byte* packed, float* partial) {
    alignas(64) float scaled[kDecodeKeys], rounded[kDecodeKeys];
    auto& state = *reinterpret_cast<DecodePartial*>(partial);
    const std::int64_t whole = round_up(keys, kDecodeLanes);
    const auto clear_unseen = [&](float* values) {  // whatever their scales are
      std::fill(values, values + seen.begin, 0.0F);
      std::fill(values + seen.end, values + whole, 0.0F);
    };
    for (std::int64_t i = 0; i < whole; ++i) scaled[i] = weight[i] * v_scale_[i];
    clear_unseen(scaled);
    if (kernels_.packed_type == PackedType::f32) {
      std::copy_n(scaled, whole, reinterpret_cast<float*>(packed));
      state.sum += sum_of(weight, whole);
      return {packed, 1.0F, partial + kDecodeHeader};
    }
    if (kernels_.packed_type == PackedType::bf16) {  // V has no scales
      Narrower(isa_, DType::bf16)(weight, packed, whole);
      widen_bf16(isa_, packed, rounded, whole);
      state.sum += sum_of(rounded, whole);
      return {packed, 1.0F, partial + kDecodeHeader};
    }
    std::uint32_t most = 0;
    for (std::int64_t i = 0; i < whole; ++i)
      most = std::max(most, std::bit_cast<std::uint32_t>(scaled[i]) & 0x7FFFFFFFu);
    const float unit = decode_unit(std::bit_cast<float>(most));
    const float inverse = 1.0F / unit;
    for (std::int64_t i = 0; i < whole; ++i) scaled[i] *= inverse;
    method_.narrow(scaled, packed, whole);
    // The rounding error of a weight is added to the sum as well, so that V = 1 gives 1; but not
    // below the normal numbers of f16, where the error may be any part of the weight and is
    // negligible beside the largest: a weight whose packed value vanishes there still counts in the
    // sum.
    method_.widen(packed, rounded, whole);
    for (std::int64_t i = 0; i < whole; ++i) {
      const std::uint32_t normal = mask_of(std::abs(scaled[i]) >= 0x1p-14F);
      const float off = (rounded[i] - scaled[i]) * unit * v_inverse_[i];
      rounded[i] = weight[i] + std::bit_cast<float>(std::bit_cast<std::uint32_t>(off) & normal);
    }
    clear_unseen(rounded);
    state.sum += sum_of(rounded, whole);
    return {packed, unit * kDecodeFactor, partial + kDecodeHeader};
  }

  // Weighted values of which some are not finite, by definition.
  void weigh_nonfinite(const float* weight, std::int64_t key, const DecodeSeen& seen,
                       float* sums) const {
    alignas(64) float row[kMaxHeadSize];
    for (std::int64_t i = seen.begin; i < seen.end; ++i) {
      v_.row(key + i, row);
      for (std::int64_t e = 0; e < v_.cols(); ++e) sums[e] += weight[i] * v_scale_[i] * row[e];
    }
  }

  const Isa& isa_;
  const AttentionMethod& method_;
  const AttentionJob& job_;
  const DecodeSplit& split_;
  GemmOperand v_operand_;
  const DecodeKernels& kernels_;
  DecodeScores scores_;
  int together_;  // rows of a call
  AttentionRows v_;
  alignas(64) float v_scale_[kDecodeKeys], v_inverse_[kDecodeKeys];
};

}  // namespace

void attend_split(const Isa& isa, const AttentionMethod& method, const AttentionJob& job,
                  const DecodeSplit& split, float* partials) {
  KeySplit(isa, method, job, split).run(partials);
}

void merge_split(float* to, const float* from, std::int64_t width) {
  auto& state = *reinterpret_cast<DecodePartial*>(to);
  const auto& other = *reinterpret_cast<const DecodePartial*>(from);
  if (other.top == -kInfinity) return;
  const float rescale = raised(state, other.top);
  const float factor = exp2_of(other.base - state.base);
  state.sum = state.sum * rescale + other.sum * factor;
  state.weight_squares =
      state.weight_squares * rescale * rescale + other.weight_squares * factor * factor;
  state.norms = std::max(state.norms, other.norms);
  for (std::int64_t e = 0; e < width; ++e)
    to[kDecodeHeader + e] = to[kDecodeHeader + e] * rescale + from[kDecodeHeader + e] * factor;
}

}  // namespace octavo::cpu
