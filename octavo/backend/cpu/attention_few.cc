// Keys of a head are cut into pieces of a fixed length, each done by one thread; pieces are added
// up in their order, so that threads change nothing. Rows that come out doubtful
// (attention_doubt.h) are done again, with scores in f32.
#include "octavo/backend/cpu/attention_few.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/backend/cpu/attention_block.h"
#include "octavo/backend/cpu/attention_doubt.h"
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
  float top = -kInfinity, base = -kInfinity, sum = 0.0F, squares = 0.0F;  // of weights
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

float squares_of(const float* values, std::int64_t n) {
  float sums[kSide] = {};
  for (std::int64_t i = 0; i < n; i += kSide)
    for (std::int64_t j = 0; j < kSide; ++j) sums[j] += values[i + j] * values[i + j];
  return sum_of(sums, kSide);
}

// `only`: the rows of the head that are done, with scores in f32; null: all of them.
class Piece {
 public:
  Piece(const Isa& isa, const AttentionMethod& method, const AttentionJob& job, std::int64_t batch,
        std::int64_t kv_head, const std::uint8_t* only)
      : isa_(isa),
        method_(method),
        job_(job),
        batch_(batch),
        only_(only),
        v_operand_(job.v.at(batch, kv_head)),
        few_(*method.few(v_operand_)),
        scores_(isa, *method.few(job.k.at(batch, kv_head)), job, batch, kv_head, only != nullptr),
        v_(isa, v_operand_, job.values, Split::row) {}

  // Keys [first, last) for rows of the head; `partials` has row_floats for each.
  void run(std::int64_t first, std::int64_t last, float* partials) {
    const std::int64_t rows = rows_of_head(job_), step = row_floats(job_);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (!is_done(r)) continue;
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
        if (!is_done(r)) {
          ++r;
          continue;
        }
        const FewSeen seen = seen_of(r, key, keys);
        int count = 1;
        while (count < kFewTogether && r + count < rows && is_done(r + count) &&
               seen_of(r + count, key, keys) == seen)
          ++count;
        if (seen.begin < seen.end) attend(r, count, key, keys, seen, partials + r * step);
        r += count;
      }
    }
  }

 private:
  [[nodiscard]] bool is_done(std::int64_t r) const { return only_ == nullptr || only_[r] != 0; }

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
    state.squares = state.squares * rescale * rescale + squares_of(score, whole);
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
  const std::uint8_t* only_;
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
  state.squares = state.squares * rescale * rescale + other.squares * factor * factor;
  for (std::int64_t e = 0; e < width; ++e)
    to[kHeader + e] = to[kHeader + e] * rescale + from[kHeader + e] * factor;
}

// Two steps, and memory between them: partials of every piece, and which rows are to be done again.
class FewCall {
 public:
  FewCall(const AttentionJob& job, std::byte* memory)
      : job_(job),
        heads_(job.batches * job.kv_heads),
        pieces_(blocks(job.keys, kPiece)),
        rows_(rows_of_head(job)),
        step_(row_floats(job)),
        partials_(reinterpret_cast<float*>(memory)),
        doubtful_(reinterpret_cast<std::uint8_t*>(memory) + partial_bytes()) {}

  [[nodiscard]] std::int64_t workspace() const { return partial_bytes() + heads_ * rows_; }

  void run(const Isa& isa, const AttentionMethod& method, int threads) const {
    std::fill_n(doubtful_, heads_ * rows_, std::uint8_t{0});
    attend(isa, method, threads, Rows::all);
    finish(isa, method, threads, Rows::all);
    if (std::find(doubtful_, doubtful_ + heads_ * rows_, 1) == doubtful_ + heads_ * rows_) return;
    attend(isa, method, threads, Rows::doubtful);
    finish(isa, method, threads, Rows::doubtful);
  }

 private:
  enum class Rows { all, doubtful };

  [[nodiscard]] std::int64_t partial_bytes() const { return heads_ * pieces_ * rows_ * step_ * 4; }

  void attend(const Isa& isa, const AttentionMethod& method, int threads, Rows which) const {
    share_units(heads_ * pieces_, threads, [&](std::int64_t unit) {
      const std::int64_t head = unit / pieces_, batch = head / job_.kv_heads;
      const std::uint8_t* const only = which == Rows::all ? nullptr : doubtful_ + head * rows_;
      if (only != nullptr && std::find(only, only + rows_, 1) == only + rows_) return;
      const std::int64_t keys = job_.key_lengths != nullptr ? job_.key_lengths[batch] : job_.keys;
      const std::int64_t first = unit % pieces_ * kPiece;
      Piece(isa, method, job_, batch, head % job_.kv_heads, only)
          .run(first, std::max(first, std::min(keys, first + kPiece)),
               partials_ + unit * rows_ * step_);
    });
  }

  void finish(const Isa& isa, const AttentionMethod& method, int threads, Rows which) const {
    const AttentionFinish finish(isa, job_, 1.0F);
    const std::int64_t group = job_.heads / job_.kv_heads;
    const bool looks = which == Rows::all && method.few(job_.k.first)->squares != nullptr;
    const double sigma = few_aligned_sigma(static_cast<double>(job_.q.first.cols()));
    share_units(heads_ * rows_, threads, [&](std::int64_t unit) {
      if (which == Rows::doubtful && doubtful_[unit] == 0) return;
      const std::int64_t head = unit / rows_, r = unit % rows_;
      float* const first = partials_ + (head * pieces_ * rows_ + r) * step_;
      Partial none{};
      const float zero = 0.0F;
      for (std::int64_t piece = 1; piece < pieces_; ++piece)
        add_piece(first, first + piece * rows_ * step_, job_.v.first.cols());
      const Partial& state = pieces_ > 0 ? *reinterpret_cast<const Partial*>(first) : none;
      if (looks && is_doubtful(weights_of(state), sigma)) {
        doubtful_[unit] = 1;
        return;
      }
      finish(head / job_.kv_heads, head % job_.kv_heads * group + r / job_.queries,
             r % job_.queries,
             {state.top, state.base, state.sum, pieces_ > 0 ? first + kHeader : &zero,
              pieces_ > 0 ? 1 : 0});
    });
  }

  static RowWeights weights_of(const Partial& state) {
    constexpr double kLn2 = 0.6931471805599453;
    const auto sum = static_cast<double>(state.sum);
    return {.largest = static_cast<double>(std::exp2(state.top - state.base)) / sum,
            .squares = static_cast<double>(state.squares) / (sum * sum),
            .score = static_cast<double>(std::abs(state.top)) * kLn2};
  }

  const AttentionJob& job_;
  std::int64_t heads_, pieces_, rows_, step_;
  float* partials_;
  std::uint8_t* doubtful_;
};

}  // namespace

bool is_few(const AttentionMethod& method, const AttentionJob& job) {
  const auto fits = [&](const GemmOperand& operand) {
    return operand.cols() % 16 == 0 && method.few(operand) != nullptr;
  };
  return method.few != nullptr && job.ranges == nullptr && job.bias.first == nullptr &&
         rows_of_head(job) <= kMostFewRows && rows_of_head(job) > 0 && fits(job.k.first) &&
         fits(job.v.first);
}

std::int64_t few_workspace(const AttentionJob& job) { return FewCall(job, nullptr).workspace(); }

void attend_few(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                const AttentionJob& job) {
  FewCall(job, exec.workspace.data()).run(isa, method, std::max(1, exec.threads));
}

}  // namespace octavo::cpu
