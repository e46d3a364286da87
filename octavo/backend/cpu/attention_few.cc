// Keys of a head are cut into pieces of a fixed length, each done by one thread; pieces are added
// up in their order, so that threads change nothing.
#include "octavo/backend/cpu/attention_few.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/backend/cpu/attention_block.h"
#include "octavo/backend/cpu/attention_softmax.h"
#include "octavo/backend/cpu/gemm_cut.h"
#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/narrow.h"
#include "octavo/backend/cpu/share.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMostRows = 16, kPiece = 1024;
static_assert(kPiece % kFewKeys == 0);
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLog2E = 1.4426950408889634;

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

float power_of_two_at_least(float value) {
  const std::uint32_t field = (std::bit_cast<std::uint32_t>(value) + 0x7FFFFFu) >> 23;
  return std::bit_cast<float>(std::clamp(field, 8u, 240u) << 23);
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

float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kSums = 16;  // side by side, as above; n is a multiple of it
  float sums[kSums] = {};
  for (std::int64_t d = 0; d < n; d += kSums)
    for (std::int64_t j = 0; j < kSums; ++j) sums[j] += a[d + j] * b[d + j];
  float sum = 0.0F;
  for (const float one : sums) sum += one;
  return sum;
}

class Piece {
 public:
  Piece(const Isa& isa, const AttentionMethod& method, const AttentionJob& job, std::int64_t batch,
        std::int64_t kv_head)
      : method_(method),
        job_(job),
        batch_(batch),
        kv_head_(kv_head),
        k_operand_(job.k.at(batch, kv_head)),
        v_operand_(job.v.at(batch, kv_head)),
        k_few_(*method.few(k_operand_)),
        v_few_(*method.few(v_operand_)),
        k_(isa, k_operand_, job.values, Split::row),
        v_(isa, v_operand_, job.values, Split::row),
        isa_(isa) {}

  // Keys [first, last) for all rows of the head; `partials` has row_floats for each.
  void run(std::int64_t first, std::int64_t last, float* partials) {
    const std::int64_t rows = rows_of_head(job_), step = row_floats(job_);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::fill_n(partials + r * step, step, 0.0F);
      *reinterpret_cast<Partial*>(partials + r * step) = Partial{};
      lay_query(r);
    }
    for (std::int64_t key = first; key < last; key += kFewKeys) {
      const std::int64_t keys = std::min(kFewKeys, last - key);
      k_.scales(key, keys, k_scale_);
      v_.scales(key, keys, v_scale_);
      if (k_few_.lane == Lane::f16)
        for (std::int64_t i = 0; i < keys; ++i) k_scale_[i] *= kFewFactor;
      // Rows that see the same keys go together: a query each of heads that share keys.
      for (std::int64_t r = 0; r < rows;) {
        const Seen seen = seen_of(r, key, keys);
        int count = 1;
        while (count < kFewTogether && r + count < rows && seen_of(r + count, key, keys) == seen)
          ++count;
        if (seen.begin < seen.end) attend(r, count, key, keys, seen, partials + r * step);
        r += count;
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t head_of(std::int64_t r) const {
    return kv_head_ * (job_.heads / job_.kv_heads) + r / job_.queries;
  }
  [[nodiscard]] std::int64_t row_of(std::int64_t r) const { return r % job_.queries; }

  void lay_query(std::int64_t r) {
    alignas(64) float q[kMostHeadSize];
    const AttentionRows rows(isa_, job_.q.at(batch_, head_of(r)), job_.values, Split::row);
    if (job_.keys_of(batch_, row_of(r)).end == 0) return;
    rows.row(row_of(r), q);
    const float scale = rows.scale(row_of(r));
    odd_[r] = !is_finite_row(q, rows.cols()) || !is_finite_row(&scale, 1);
    float amax = 0.0F;
    for (std::int64_t d = 0; d < rows.cols(); ++d) amax = std::max(amax, std::abs(q[d]));
    unit_[r] = k_few_.lane == Lane::f32 ? 1.0F : power_of_two_at_least(amax / kMostFewLane);
    q_unit_[r] = unit_[r];
    for (std::int64_t d = 0; d < rows.cols(); ++d) q[d] /= unit_[r];
    k_few_.lay_query(q, rows.cols(), laid_[r]);
    q_norm_[r] = std::sqrt(static_cast<double>(dot(q, q, rows.cols()))) *
                 static_cast<double>(unit_[r]) * std::abs(static_cast<double>(scale));
    unit_[r] *= static_cast<float>(job_.softmax_scale * kLog2E) * scale;
  }

  // Of a block of keys, from the first that a row sees to behind the last.
  struct Seen {
    std::int64_t begin, end;
    bool operator==(const Seen&) const = default;
  };

  // The largest norm of keys that are seen, where dots are summed in f16, or what that is at most.
  // Squares may lose 2^-24 there. Keys with a NaN count as nothing: they are done another way.
  double largest_norm(std::int64_t key, const Seen& seen, bool exact) const {
    const Matrix& k = k_operand_.elements();
    alignas(64) float squares[kFewKeys];
    const std::int64_t count = seen.end - seen.begin;
    if (exact)
      for (std::int64_t i = 0; i < count; ++i)
        squares[i] = k_few_.squares(element(k, key + seen.begin + i, 0), k.cols);
    else
      k_few_.most_squares({element(k, key + seen.begin, 0), k.row_pitch, count, k.cols}, squares);
    const float lost = static_cast<float>(k.cols) * 0x1p-24F;
    double most = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto scale = static_cast<double>(k_scale_[seen.begin + i]);
      const double square = static_cast<double>(squares[i] + lost) * scale * scale;
      most = square > most ? square : most;
    }
    return std::sqrt(most);
  }
  // Which of rows [r, r + count) have scores that are too large for sums in f16? Whether any has.
  bool find_large(std::int64_t r, int count, std::int64_t key, const Seen& seen,
                  bool* large) const {
    if (k_few_.squares == nullptr) return false;
    const double limit = most_norms(static_cast<double>(k_operand_.cols()));
    double norm = largest_norm(key, seen, false);
    const auto is_large = [&](int g) {
      return norm * q_norm_[r + g] * std::abs(job_.softmax_scale) > limit;
    };
    bool any = false;
    for (int g = 0; g < count; ++g) any |= is_large(g);
    if (!any) return false;
    norm = largest_norm(key, seen, true);
    any = false;
    for (int g = 0; g < count; ++g) any |= large[g] = is_large(g);
    return any;
  }

  [[nodiscard]] Seen seen_of(std::int64_t r, std::int64_t key, std::int64_t keys) const {
    const AttentionJob::Keys sees = job_.keys_of(batch_, row_of(r));
    if (sees.begin >= key + keys || sees.end <= key || sees.begin >= sees.end) return {0, 0};
    return {std::max<std::int64_t>(0, sees.begin - key), std::min(keys, sees.end - key)};
  }

  // Rows [r, r + count), whose partials follow each other.
  void attend(std::int64_t r, int count, std::int64_t key, std::int64_t keys, const Seen& seen,
              float* partials) {
    const std::int64_t step = row_floats(job_);
    alignas(64) float score[kFewTogether][kFewKeys];
    float* scores[kFewTogether];
    const std::byte* queries[kFewTogether];
    bool odd = false;
    for (int g = 0; g < count; ++g) {
      scores[g] = score[g];
      queries[g] = laid_[r + g];
      odd |= odd_[r + g];
    }
    const Matrix& k = k_operand_.elements();
    const bool good = !odd && k_few_.dots({element(k, key, 0), k.row_pitch, keys, k.cols}, queries,
                                          count, scores);
    bool large[kFewTogether] = {};
    if (good && find_large(r, count, key, seen, large))
      score_wide(r, count, large, key, keys, scores);
    alignas(64) std::byte lanes[kFewTogether][kFewKeys * 4];
    FewWeights weights[kFewTogether];
    for (int g = 0; g < count; ++g) {
      if (good) {
        for (std::int64_t i = 0; i < keys; ++i) score[g][i] *= k_scale_[i] * unit_[r + g];
      } else {
        score_odd(r + g, key, keys, score[g]);
      }
      softmax(score[g], keys, seen, partials + g * step);
      weights[g] = lay_weights(score[g], keys, lanes[g], partials + g * step);
    }
    // Rows that are not seen are not read, so that nothing is multiplied by zero.
    const Matrix& v = v_operand_.elements();
    const std::int64_t lane = lane_bytes(v_few_.lane);
    alignas(64) float before[kFewTogether][kMostHeadSize];
    for (int g = 0; g < count; ++g) {
      weights[g].lanes += seen.begin * lane;
      std::copy_n(weights[g].sums, v.cols, before[g]);
    }
    if (v_few_.weigh({element(v, key + seen.begin, 0), v.row_pitch, seen.end - seen.begin, v.cols},
                     weights, count))
      return;
    for (int g = 0; g < count; ++g) {
      std::copy_n(before[g], v.cols, weights[g].sums);
      weigh_odd(score[g], key, seen, weights[g].sums);
    }
  }

  // As the softmax of a strip does it, along a row. Scores become weights.
  void softmax(float* score, std::int64_t keys, const Seen& seen, float* partial) const {
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
  FewWeights lay_weights(const float* weight, std::int64_t keys, std::byte* lanes, float* partial) {
    alignas(64) float scaled[kFewKeys], rounded[kFewKeys];
    auto& state = *reinterpret_cast<Partial*>(partial);
    const std::int64_t whole = round_up(keys, kSide);
    std::fill(v_scale_ + keys, v_scale_ + whole, 1.0F);
    for (std::int64_t i = 0; i < whole; ++i) scaled[i] = weight[i] * v_scale_[i];
    if (v_few_.lane == Lane::f32) {
      std::copy_n(scaled, whole, reinterpret_cast<float*>(lanes));
      state.sum += sum_of(weight, whole);
      return {lanes, 1.0F, partial + kHeader};
    }
    if (v_few_.lane == Lane::bf16) {  // V has no scales
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
    // What rounding did to a weight is taken out of the sum again, so that V = 1 gives 1. A scale
    // of zero has nothing to take out.
    method_.widen(lanes, rounded, whole);
    for (std::int64_t i = 0; i < whole; ++i) {
      const std::uint32_t zero = mask_of(v_scale_[i] == 0.0F);
      const float divisor = std::bit_cast<float>(select(zero, std::bit_cast<std::uint32_t>(1.0F),
                                                        std::bit_cast<std::uint32_t>(v_scale_[i])));
      const float moved = (rounded[i] - scaled[i]) * unit / divisor;
      rounded[i] = weight[i] + std::bit_cast<float>(std::bit_cast<std::uint32_t>(moved) & ~zero);
    }
    state.sum += sum_of(rounded, whole);
    return {lanes, unit * kFewFactor, partial + kHeader};
  }

  // Values of which some are not finite, by definition.
  void weigh_odd(const float* weight, std::int64_t key, const Seen& seen, float* sums) const {
    alignas(64) float row[kMostHeadSize];
    for (std::int64_t i = seen.begin; i < seen.end; ++i) {
      v_.row(key + i, row);
      for (std::int64_t e = 0; e < v_.cols(); ++e) sums[e] += weight[i] * v_scale_[i] * row[e];
    }
  }

  // Dots in f32, of what `dots` has: lanes of the query, and codes / kFewFactor.
  void score_wide(std::int64_t r, int count, const bool* large, std::int64_t key, std::int64_t keys,
                  float* const* scores) const {
    alignas(64) float q[kFewTogether][kMostHeadSize], k[kMostHeadSize];
    for (int g = 0; g < count; ++g) {
      const AttentionRows rows(isa_, job_.q.at(batch_, head_of(r + g)), job_.values, Split::row);
      rows.row(row_of(r + g), q[g]);
      for (std::int64_t d = 0; d < rows.cols(); ++d) q[g][d] /= q_unit_[r + g];
    }
    for (std::int64_t i = 0; i < keys; ++i) {
      k_.row(key + i, k);
      for (int g = 0; g < count; ++g)
        if (large[g]) scores[g][i] = dot(q[g], k, k_.cols()) / kFewFactor;
    }
  }

  // Scores of rows or keys that are not finite, by definition.
  void score_odd(std::int64_t r, std::int64_t key, std::int64_t keys, float* score) const {
    alignas(64) float q[kMostHeadSize], k[kMostHeadSize];
    const AttentionRows rows(isa_, job_.q.at(batch_, head_of(r)), job_.values, Split::none),
        all(isa_, k_operand_, job_.values, Split::none);
    rows.row(row_of(r), q);
    for (std::int64_t i = 0; i < keys; ++i) {
      all.row(key + i, k);
      double sum = 0.0;
      for (std::int64_t d = 0; d < rows.cols(); ++d)
        sum += static_cast<double>(q[d]) * static_cast<double>(k[d]);
      score[i] = static_cast<float>(sum * job_.softmax_scale * kLog2E);
    }
  }

  const AttentionMethod& method_;
  const AttentionJob& job_;
  std::int64_t batch_, kv_head_;
  GemmOperand k_operand_, v_operand_;
  const FewKernels &k_few_, &v_few_;
  AttentionRows k_, v_;
  const Isa& isa_;
  alignas(64) std::byte laid_[kMostRows][kMostHeadSize * 4];
  float unit_[kMostRows] = {}, q_unit_[kMostRows] = {};
  double q_norm_[kMostRows] = {};
  bool odd_[kMostRows] = {};
  float k_scale_[kFewKeys], v_scale_[kFewKeys];
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
         rows_of_head(job) <= kMostRows && rows_of_head(job) > 0 && fits(job.k.first) &&
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
