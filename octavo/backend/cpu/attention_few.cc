// Keys of a head are cut into pieces of a fixed length, each done by one thread; pieces are added
// up in their order, so that threads change nothing.
#include "octavo/backend/cpu/attention_few.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/backend/cpu/attention_block.h"
#include "octavo/backend/cpu/attention_few_score.h"
#include "octavo/backend/cpu/attention_softmax.h"
#include "octavo/backend/cpu/gemm_cut.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/narrow.h"
#include "octavo/backend/cpu/share.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPiece = 1024;
static_assert(kPiece % kFewKeys == 0);
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a row has after some keys. Sums follow.
struct Partial {
  float top = -kInfinity, base = -kInfinity, sum = 0.0F;
};
constexpr std::int64_t kHeader = 16;  // floats before the sums of a row

std::int64_t row_floats(const AttentionJob& job) {
  return kHeader + round_up(job.v.first.cols(), 16);
}
std::int64_t rows_of_head(const AttentionJob& job) {
  return job.queries * (job.heads / job.kv_heads);
}

// Eight side by side, which compilers vectorise; n is a multiple of that.
constexpr std::int64_t kSide = 8;
static_assert(kFewKeys % kSide == 0);

// NaN where there is one. By integers in the order of the numbers, which compilers make vectors of:
// NaN lies outside of the infinities there.
float largest_of(const float* values, std::int64_t n) {
  constexpr std::int32_t kMost = 0x7F800000, kLeast = ~kMost;
  std::int32_t most = kLeast, least = kMost;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::int32_t>(values[i]);
    const std::int32_t place = bits ^ ((bits >> 31) & 0x7FFFFFFF);
    most = std::max(most, place);
    least = std::min(least, place);
  }
  if (most > kMost || least < kLeast) return std::numeric_limits<float>::quiet_NaN();
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

class Piece {
 public:
  Piece(const Isa& isa, const AttentionMethod& method, const AttentionJob& job, std::int64_t batch,
        std::int64_t kv_head)
      : isa_(isa),
        method_(method),
        job_(job),
        batch_(batch),
        v_operand_(job.v.at(batch, kv_head)),
        few_(*method.few(v_operand_)),
        scores_(isa, *method.few(job.k.at(batch, kv_head)), job, batch, kv_head),
        v_(isa, v_operand_, job.values, Split::row) {}

  // Keys [first, last) for all rows of the head; `partials` has row_floats for each.
  void run(std::int64_t first, std::int64_t last, float* partials) {
    const std::int64_t rows = rows_of_head(job_), step = row_floats(job_);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::fill_n(partials + r * step, step, 0.0F);
      *reinterpret_cast<Partial*>(partials + r * step) = Partial{};
      scores_.lay_query(r);
    }
    for (std::int64_t key = first; key < last; key += kFewKeys) {
      const std::int64_t keys = std::min(kFewKeys, last - key);
      scores_.turn_to(key, keys);
      find_scales(key, keys);
      // Rows that see the same keys go together: a query each of heads that share keys.
      for (std::int64_t r = 0; r < rows;) {
        const FewSeen seen = seen_of(r, key, keys);
        int count = 1;
        while (count < kFewTogether && r + count < rows && seen_of(r + count, key, keys) == seen)
          ++count;
        if (seen.begin < seen.end) attend(r, count, key, keys, seen, partials + r * step);
        r += count;
      }
    }
  }

 private:
  [[nodiscard]] FewSeen seen_of(std::int64_t r, std::int64_t key, std::int64_t keys) const {
    const AttentionJob::Keys sees = job_.keys_of(batch_, r % job_.queries);
    if (sees.begin >= key + keys || sees.end <= key || sees.begin >= sees.end) return {0, 0};
    return {std::max<std::int64_t>(0, sees.begin - key), std::min(keys, sees.end - key)};
  }

  // Of rows of V, and what to multiply by to undo them: zero has nothing to undo, nor has what is
  // too small to be turned over.
  void find_scales(std::int64_t key, std::int64_t keys) {
    v_.scales(key, keys, v_scale_);
    const std::int64_t whole = round_up(keys, kSide);
    std::fill(v_scale_ + keys, v_scale_ + whole, 1.0F);
    if (few_.lane != Lane::f16) return;
    for (std::int64_t i = 0; i < whole; ++i) {
      const std::uint32_t zero = mask_of(std::abs(v_scale_[i]) < 0x1p-126F);
      v_inverse_[i] =
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.0F / v_scale_[i]) & ~zero);
    }
  }

  // Rows [r, r + count), whose partials follow each other.
  void attend(std::int64_t r, int count, std::int64_t key, std::int64_t keys, const FewSeen& seen,
              float* partials) {
    const std::int64_t step = row_floats(job_);
    alignas(64) float score[kFewTogether][kFewKeys];
    alignas(64) std::byte lanes[kFewTogether][kFewKeys * 4];
    FewWeights weights[kFewTogether];
    scores_.score(r, count, seen, score);
    for (int g = 0; g < count; ++g) {
      softmax(score[g], keys, seen, partials + g * step);
      weights[g] = lay_weights(score[g], keys, seen, lanes[g], partials + g * step);
    }
    // Rows that are not seen are not read, so that nothing is multiplied by zero.
    const Matrix& v = v_operand_.elements();
    alignas(64) float before[kFewTogether][kMostHeadSize];
    for (int g = 0; g < count; ++g) {
      weights[g].lanes += seen.begin * lane_bytes(few_.lane);
      std::copy_n(weights[g].sums, v.cols, before[g]);
    }
    if (few_.weigh({element(v, key + seen.begin, 0), v.row_pitch, seen.end - seen.begin, v.cols},
                   weights, count))
      return;
    for (int g = 0; g < count; ++g) {
      std::copy_n(before[g], v.cols, weights[g].sums);
      weigh_odd(score[g], key, seen, weights[g].sums);
    }
  }

  // As the softmax of a strip does it, along a row. Scores become weights.
  void softmax(float* score, std::int64_t keys, const FewSeen& seen, float* partial) const {
    auto& state = *reinterpret_cast<Partial*>(partial);
    const std::int64_t whole = round_up(keys, kSide);
    std::fill(score, score + seen.begin, -kInfinity);
    std::fill(score + seen.end, score + whole, -kInfinity);
    const float largest = largest_of(score, whole);
    float rescale = 1.0F;
    const SoftmaxJob job{.scores = nullptr,
                         .weights = nullptr,
                         .keys = 0,
                         .run = 0,
                         .top = &state.top,
                         .base = &state.base,
                         .sum = &state.sum,
                         .rescale = &rescale};
    float* const sums = partial + kHeader;
    if (raise_top<1>(job, &largest))
      for (std::int64_t e = 0; e < job_.v.first.cols(); ++e) sums[e] *= rescale;
    const float from = origin(state.base);
    for (std::int64_t i = 0; i < whole; ++i) score[i] = exp2_of(score[i] - from);
    state.sum *= rescale;
  }

  // Weights with the scales of their rows of V, rounded to lanes; and the sum of what they then
  // are.
  FewWeights lay_weights(const float* weight, std::int64_t keys, const FewSeen& seen,
                         std::byte* lanes, float* partial) {
    alignas(64) float scaled[kFewKeys], rounded[kFewKeys];
    auto& state = *reinterpret_cast<Partial*>(partial);
    const std::int64_t whole = round_up(keys, kSide);
    const auto clear_unseen = [&](float* values) {  // whatever their scales are
      std::fill(values, values + seen.begin, 0.0F);
      std::fill(values + seen.end, values + whole, 0.0F);
    };
    for (std::int64_t i = 0; i < whole; ++i) scaled[i] = weight[i] * v_scale_[i];
    clear_unseen(scaled);
    if (few_.lane == Lane::f32) {
      std::copy_n(scaled, whole, reinterpret_cast<float*>(lanes));
      state.sum += sum_of(weight, whole);
      return {lanes, 1.0F, partial + kHeader};
    }
    if (few_.lane == Lane::bf16) {  // V has no scales
      Narrower(isa_, DType::bf16)(weight, lanes, whole);
      widen_bf16(lanes, rounded, whole);
      state.sum += sum_of(rounded, whole);
      return {lanes, 1.0F, partial + kHeader};
    }
    std::uint32_t most = 0;
    for (std::int64_t i = 0; i < whole; ++i)
      most = std::max(most, std::bit_cast<std::uint32_t>(scaled[i]) & 0x7FFFFFFFu);
    const float unit = power_of_two_at_least(std::bit_cast<float>(most) / kMostFewLane);
    const float inverse = 1.0F / unit;
    for (std::int64_t i = 0; i < whole; ++i) scaled[i] *= inverse;
    method_.narrow(scaled, lanes, whole);
    // What rounding did to a weight is taken out of the sum again, so that V = 1 gives 1. Below the
    // normal numbers of f16 that is any part of it, and nothing beside the largest: a weight whose
    // value vanishes there is still a weight.
    method_.widen(lanes, rounded, whole);
    for (std::int64_t i = 0; i < whole; ++i) {
      const std::uint32_t normal = mask_of(std::abs(scaled[i]) >= 0x1p-14F);
      const float off = (rounded[i] - scaled[i]) * unit * v_inverse_[i];
      rounded[i] = weight[i] + std::bit_cast<float>(std::bit_cast<std::uint32_t>(off) & normal);
    }
    clear_unseen(rounded);
    state.sum += sum_of(rounded, whole);
    return {lanes, unit * kFewFactor, partial + kHeader};
  }

  // Values of which some are not finite, by definition.
  void weigh_odd(const float* weight, std::int64_t key, const FewSeen& seen, float* sums) const {
    alignas(64) float row[kMostHeadSize];
    for (std::int64_t i = seen.begin; i < seen.end; ++i) {
      v_.row(key + i, row);
      for (std::int64_t e = 0; e < v_.cols(); ++e) sums[e] += weight[i] * v_scale_[i] * row[e];
    }
  }

  const Isa& isa_;
  const AttentionMethod& method_;
  const AttentionJob& job_;
  std::int64_t batch_;
  GemmOperand v_operand_;
  const FewKernels& few_;
  FewScores scores_;
  AttentionRows v_;
  alignas(64) float v_scale_[kFewKeys], v_inverse_[kFewKeys];
};

// Adds a later piece to a row's partial.
void add_piece(float* to, const float* from, std::int64_t width) {
  auto& state = *reinterpret_cast<Partial*>(to);
  const auto& other = *reinterpret_cast<const Partial*>(from);
  if (other.top == -kInfinity) return;
  float largest = other.top, rescale = 1.0F;
  const SoftmaxJob job{.scores = nullptr,
                       .weights = nullptr,
                       .keys = 0,
                       .run = 0,
                       .top = &state.top,
                       .base = &state.base,
                       .sum = &state.sum,
                       .rescale = &rescale};
  raise_top<1>(job, &largest);
  const float factor = exp2_of(other.base - state.base);
  state.sum = state.sum * rescale + other.sum * factor;
  for (std::int64_t e = 0; e < width; ++e)
    to[kHeader + e] = to[kHeader + e] * rescale + from[kHeader + e] * factor;
}

}  // namespace

bool is_few(const AttentionMethod& method, const AttentionJob& job) {
  const auto fits = [&](const GemmOperand& operand) {
    return operand.cols() % 16 == 0 && method.few(operand) != nullptr;
  };
  return method.few != nullptr && job.ranges == nullptr && job.bias.first == nullptr &&
         rows_of_head(job) <= kMostFewRows && rows_of_head(job) > 0 && fits(job.k.first) &&
         fits(job.v.first);
}

std::int64_t few_workspace(const AttentionJob& job) {
  return job.batches * job.kv_heads * blocks(job.keys, kPiece) * rows_of_head(job) *
         row_floats(job) * 4;
}

void attend_few(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                const AttentionJob& job) {
  auto* const partials = reinterpret_cast<float*>(exec.workspace.data());
  const std::int64_t heads = job.batches * job.kv_heads, pieces = blocks(job.keys, kPiece);
  const std::int64_t rows = rows_of_head(job), step = row_floats(job),
                     group = job.heads / job.kv_heads;
  const int threads = std::max(1, exec.threads);
  share_units(heads * pieces, threads, [&](std::int64_t unit) {
    const std::int64_t head = unit / pieces, batch = head / job.kv_heads;
    const std::int64_t keys = job.key_lengths != nullptr ? job.key_lengths[batch] : job.keys;
    const std::int64_t first = unit % pieces * kPiece;
    Piece(isa, method, job, batch, head % job.kv_heads)
        .run(first, std::max(first, std::min(keys, first + kPiece)), partials + unit * rows * step);
  });
  const AttentionFinish finish(isa, job, 1.0F);
  share_units(heads * rows, threads, [&](std::int64_t unit) {
    const std::int64_t head = unit / rows, r = unit % rows;
    float* const first = partials + (head * pieces * rows + r) * step;
    Partial none{};
    const float zero = 0.0F;
    for (std::int64_t piece = 1; piece < pieces; ++piece)
      add_piece(first, first + piece * rows * step, job.v.first.cols());
    const Partial& state = pieces > 0 ? *reinterpret_cast<const Partial*>(first) : none;
    finish(head / job.kv_heads, head % job.kv_heads * group + r / job.queries, r % job.queries,
           {state.top, state.base, state.sum, pieces > 0 ? first + kHeader : &zero,
            pieces > 0 ? 1 : 0});
  });
}

}  // namespace octavo::cpu
