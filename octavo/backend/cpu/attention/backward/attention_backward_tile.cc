#include "octavo/backend/cpu/attention/backward/attention_backward_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "octavo/backend/cpu/attention/attention_bias.h"
#include "octavo/backend/cpu/attention/attention_dropped.h"
#include "octavo/backend/cpu/attention/attention_soft_cap.h"
#include "octavo/backend/cpu/attention/attention_softmax.h"

namespace octavo::cpu {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t n = kBackwardSide;

}  // namespace

BackwardScratch::BackwardScratch(const BackwardSizes& sizes, const AttentionJob& forward,
                                 float* memory) {
  const auto take = [&](float*& part, std::int64_t count) {
    part = memory != nullptr ? memory + floats : nullptr;
    floats += round_up(count, 16);
  };
  take(k_transposed, n * sizes.padded_depth);
  take(k_rows, n * sizes.padded_depth);
  take(v_transposed, n * sizes.padded_width);
  for (float** square : {&scores, &d_p, &p_transposed, &d_s_transposed}) take(*square, n * n);
  take(d_k, n * sizes.padded_depth);
  take(d_v, n * sizes.padded_width);
  if (forward.bias.first != nullptr) take(added, n * n);
  if (forward.soft_cap != 0.0) take(slopes, n * n);
  if (forward.dropout.exists()) take(kept, n * n);
}

void BackwardSums::clear() const {
  std::fill_n(top, n, -kInfinity);
  std::fill_n(sum, n, 0.0F);
  std::fill_n(delta, n, 0.0F);
}

// NaN in a running maximum stays.
void BackwardSums::add(const BackwardSums& other) const {
  for (std::int64_t r = 0; r < n; ++r) {
    if (other.top[r] == -kInfinity) continue;
    const float before = top[r];
    if (before == before && !(other.top[r] <= before)) top[r] = other.top[r];
    const float mine = before == -kInfinity ? 0.0F : exp2_of(before - top[r]),
                theirs = exp2_of(other.top[r] - top[r]);
    sum[r] = (mine == 0.0F ? 0.0F : sum[r] * mine) + other.sum[r] * theirs;
    delta[r] = delta[r] * mine + other.delta[r] * theirs;
  }
}

void BackwardSums::add_sink(std::int64_t row, float sink) const {
  if (sink > top[row]) {
    const float rescale = exp2_of(top[row] - sink);
    sum[row] = sum[row] * rescale + 1.0F;
    delta[row] *= rescale;
    top[row] = sink;
  } else {
    sum[row] += exp2_of(sink - top[row]);
  }
}

// [keys or channels][queries or keys] += A B, panel by panel. `into` is [panels of B][rows][cols]
// where `apart`, else [rows][48].
void BackwardTile::product(const float* a, std::int64_t rows, const float* b, std::int64_t depth,
                           float* into, bool apart) const {
  const std::int64_t R = sizes_.rows, C = sizes_.cols;
  for (std::int64_t r = 0; r < rows; r += R)
    for (std::int64_t c = 0; c < n; c += C)
      method_.score.run({.a = reinterpret_cast<const std::byte*>(a + r * depth),
                         .b = reinterpret_cast<const std::byte*>(b + c * depth),
                         .run = depth,
                         .runs = 1,
                         .a_scale = nullptr,
                         .b_scale = nullptr,
                         .sums = apart ? into + c * n + r * C : into + r * n + c,
                         .pitch = apart ? C : n});
}

// The bias of the keys that rows see, 0 elsewhere, in the layout of scores.
void BackwardTile::take_bias(const BackwardBlock& rows, const Place& at, float* added) const {
  const AttentionBias& bias = forward_.bias;
  std::fill_n(added, n * n, 0.0F);
  for (std::int64_t q = 0; q < n; ++q) {
    if (rows.begin[q] >= rows.end[q]) continue;
    const float* from = bias.at(at.batch, at.head, at.first + q);
    float* const column = added + q / sizes_.cols * sizes_.cols * n + q % sizes_.cols;
    const std::int64_t end = std::min<std::int64_t>(at.key + n, rows.end[q]);
    for (std::int64_t j = std::max<std::int64_t>(at.key, rows.begin[q]); j < end; ++j)
      column[(j - at.key) * sizes_.cols] = from[j * bias.key];
  }
}

// Scores in units of log2, and dP.
void BackwardTile::score(const BackwardBlock& rows, const Place& at,
                         const BackwardScratch& s) const {
  std::fill_n(s.scores, n * n, 0.0F);
  std::fill_n(s.d_p, n * n, 0.0F);
  product(s.k_transposed, n, rows.q_transposed, sizes_.depth, s.scores, true);
  product(s.v_transposed, n, rows.d_transposed, sizes_.width, s.d_p, true);
  const auto factor = static_cast<float>(
      static_cast<double>(static_cast<float>(forward_.softmax_scale)) * std::numbers::log2e);
  for (std::int64_t i = 0; i < n * n; ++i) s.scores[i] *= factor;
  if (s.slopes != nullptr) soft_cap(s);
  if (s.kept != nullptr) drop(at, s);
  if (s.added == nullptr) return;
  take_bias(rows, at, s.added);
  const double of_bias = bias_factor(forward_.bias);
  for (std::int64_t i = 0; i < n * n; ++i)
    s.scores[i] = with_bias(s.scores[i], s.added[i], of_bias);
}

void BackwardTile::soft_cap(const BackwardScratch& s) const {
  const SoftCap cap(forward_.soft_cap);
  for (std::int64_t i = 0; i < n * n; ++i) s.slopes[i] = slope_of_soft_cap(cap, s.scores[i]);
  apply_soft_cap(cap, s.scores, n * n);
}

// What dropout multiplies weights by, and dP times it: of a dropped weight 0, whatever V holds.
void BackwardTile::drop(const Place& at, const BackwardScratch& s) const {
  const std::int64_t C = sizes_.cols;
  const auto factor = static_cast<float>(forward_.dropout.factor());
  std::int64_t row[n];
  for (std::int64_t q = 0; q < n; ++q) row[q] = at.first + q;
  for (std::int64_t j = 0; j < n; j += kDropoutKeys) {
    std::uint32_t kept[n];
    kept_of_rows(forward_.dropout, at.batch, at.head, row, n, (at.key + j) / kDropoutKeys, kept);
    for (std::int64_t i = j; i < j + kDropoutKeys; ++i)
      for (std::int64_t q = 0; q < n; ++q)
        s.kept[q / C * C * n + i * C + q % C] = (kept[q] >> (i - j) & 1u) != 0 ? factor : 0.0F;
  }
  for (std::int64_t i = 0; i < n * n; ++i)
    s.d_p[i] = s.kept[i] == 0.0F ? 0.0F : s.d_p[i] * s.kept[i];
}

void BackwardTile::sum_up(const BackwardBlock& rows, const Place& at, const BackwardScratch& s,
                          const BackwardSums& to) const {
  const std::int64_t C = sizes_.cols;
  score(rows, at, s);
  if (s.added != nullptr || !rows.all_see(at.key, at.key + n))
    for (std::int64_t panel = 0; panel < n; panel += C)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t c = 0; c < C; ++c) {
          if (sees(rows, panel + c, at.key, j, s)) continue;
          s.scores[panel * n + j * C + c] = -kInfinity;
          s.d_p[panel * n + j * C + c] = 0.0F;
        }
  for (std::int64_t panel = 0; panel < n; panel += C) {
    float *top = to.top + panel, *sum = to.sum + panel, *delta = to.delta + panel;
    float largest[n], from[n];
    std::uint32_t nan_seen[n] = {};
    std::copy_n(top, C, largest);
    for (std::int64_t j = 0; j < n; ++j) {
      const float* score = s.scores + panel * n + j * C;
      for (std::int64_t c = 0; c < C; ++c)
        largest[c] = larger_of(largest[c], score[c], nan_seen[c]);
    }
    for (std::int64_t c = 0; c < C; ++c) {
      if (nan_seen[c] != 0) largest[c] = kNaN;
      const float rescale =
          top[c] == largest[c] || top[c] == -kInfinity ? 1.0F : exp2_of(top[c] - largest[c]);
      top[c] = largest[c];
      from[c] = origin(top[c]);
      sum[c] *= rescale;
      delta[c] *= rescale;
    }
    for (std::int64_t j = 0; j < n; ++j) {
      const float *score = s.scores + panel * n + j * C, *d = s.d_p + panel * n + j * C;
      for (std::int64_t c = 0; c < C; ++c) {
        const float p = exp2_of(score[c] - from[c]);
        sum[c] += p;
        delta[c] += p * d[c];
      }
    }
  }
}

void BackwardTile::add_gradients(const BackwardBlock& rows, const Place& at,
                                 const BackwardScratch& s, float* d_q) const {
  score(rows, at, s);
  weigh(rows, at.key, s);
  product(rows.d_rows, sizes_.padded_width, s.p_transposed, n, s.d_v, false);
  product(rows.q_rows, sizes_.padded_depth, s.d_s_transposed, n, s.d_k, false);
  product(s.k_rows, sizes_.padded_depth, s.d_p, n, d_q, false);
  if (rows.d_out_is_nonfinite()) add_nonfinite(rows, s);
}

// Scores become P, transposed; d_p becomes dS, in its own layout and transposed.
void BackwardTile::weigh(const BackwardBlock& rows, std::int64_t key,
                         const BackwardScratch& s) const {
  const std::int64_t C = sizes_.cols;
  const auto scale = static_cast<float>(forward_.softmax_scale);
  for (std::int64_t panel = 0; panel < n; panel += C)
    for (std::int64_t j = 0; j < n; ++j) {
      float* score = s.scores + panel * n + j * C;
      for (std::int64_t c = 0; c < C; ++c) {
        // Above 0 only where a log-sum-exp was given, by rounding errors.
        const float below = score[c] - rows.from[panel + c];
        score[c] = below > 0.0F ? 0.0F : below;
      }
    }
  // One long loop: compilers unroll short ones and then do not vectorise.
  for (std::int64_t i = 0; i < n * n; ++i) s.scores[i] = exp2_of(s.scores[i]);
  const bool plain = s.added == nullptr && rows.all_see(key, key + n);
  for (std::int64_t panel = 0; panel < n; panel += C)
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t at = panel * n + j * C;
      float *p = s.scores + at, *d = s.d_p + at;
      const float *delta = rows.delta + panel, *times = rows.times + panel;
      for (std::int64_t c = 0; c < C; ++c) p[c] *= times[c];
      if (!plain)
        for (std::int64_t c = 0; c < C; ++c) {
          const std::int64_t q = panel + c;
          const bool seen = sees(rows, q, key, j, s);
          const bool poisoned = rows.from[q] != rows.from[q];
          p[c] = !seen ? 0.0F : poisoned ? kNaN : p[c];
          d[c] = seen ? d[c] : delta[c];
        }
      for (std::int64_t c = 0; c < C; ++c) d[c] = p[c] * (d[c] - delta[c]) * scale;
    }
  if (s.slopes != nullptr)
    for (std::int64_t i = 0; i < n * n; ++i) s.d_p[i] *= s.slopes[i];
  // Poisoned rows have NaN in `delta`, and 0 times NaN for keys that they do not see.
  if (!plain) clear_unseen(rows, key, s);
  if (s.kept != nullptr)
    for (std::int64_t i = 0; i < n * n; ++i)
      s.scores[i] = s.kept[i] == 0.0F ? 0.0F : s.scores[i] * s.kept[i];
  transpose(s.scores, s.p_transposed);
  transpose(s.d_p, s.d_s_transposed);
}

// A bias of -inf masks a key, whatever it holds.
bool BackwardTile::sees(const BackwardBlock& rows, std::int64_t q, std::int64_t key, std::int64_t j,
                        const BackwardScratch& s) const {
  if (key + j < rows.begin[q] || key + j >= rows.end[q]) return false;
  const std::int64_t C = sizes_.cols;
  return s.added == nullptr || s.added[q / C * C * n + j * C + q % C] != -kInfinity;
}

void BackwardTile::clear_unseen(const BackwardBlock& rows, std::int64_t key,
                                const BackwardScratch& s) const {
  for (std::int64_t q = 0; q < n; ++q) {
    if (std::isfinite(rows.delta[q]) && std::isfinite(rows.from[q])) continue;
    float* const column = s.d_p + q / sizes_.cols * sizes_.cols * n + q % sizes_.cols;
    for (std::int64_t j = 0; j < n; ++j)
      if (!sees(rows, q, key, j, s)) column[j * sizes_.cols] = 0.0F;
  }
}

// [panel of queries][key][query] to [panel of keys][query][key].
void BackwardTile::transpose(const float* from, float* to) const {
  const std::int64_t C = sizes_.cols;
  for (std::int64_t panel = 0; panel < n; panel += C)
    for (std::int64_t keys = 0; keys < n; keys += C)
      transpose_square(from + panel * n + keys * C, to + keys * n + panel * C);
}

// [cols][cols], four by four, which compilers turn into vector permutations.
void BackwardTile::transpose_square(const float* from, float* to) const {
  const std::int64_t C = sizes_.cols;
  constexpr std::int64_t kSide = 4;
  if (C % kSide != 0) {
    for (std::int64_t r = 0; r < C; ++r)
      for (std::int64_t c = 0; c < C; ++c) to[c * C + r] = from[r * C + c];
    return;
  }
  for (std::int64_t r = 0; r < C; r += kSide)
    for (std::int64_t c = 0; c < C; c += kSide) {
      float square[kSide][kSide];
      for (std::int64_t i = 0; i < kSide; ++i)
        for (std::int64_t j = 0; j < kSide; ++j) square[j][i] = from[(r + i) * C + c + j];
      for (std::int64_t i = 0; i < kSide; ++i)
        for (std::int64_t j = 0; j < kSide; ++j) to[(c + i) * C + r + j] = square[i][j];
    }
}

// Adds non-finite dO to the values that its row sees, and no others.
void BackwardTile::add_nonfinite(const BackwardBlock& rows, const BackwardScratch& s) const {
  const std::int64_t C = sizes_.cols;
  for (std::int64_t q = 0; q < n; ++q)
    for (std::int64_t e = 0; e < sizes_.width; ++e) {
      const float d = rows.d_transposed[q / C * C * sizes_.width + e * C + q % C];
      if (std::isfinite(d)) continue;
      for (std::int64_t j = 0; j < n; ++j) {
        const float p = s.p_transposed[j / C * C * n + q * C + j % C];
        if (p != 0.0F) s.d_v[e * n + j] += p * d;
      }
    }
}

}  // namespace octavo::cpu
