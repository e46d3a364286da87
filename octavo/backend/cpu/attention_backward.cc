// Gradients of attention in f32. With s the scores, P = 2^(s - l) the weights (l is the log-sum-exp
// of the forward pass, done again here where it is not given), O the output and a = sum_e dO O of a
// row:
//   dV = P^T dO,   dP = dO V^T,   dS = P (dP - a) scale,   dQ = dS K,   dK = dS^T Q.
// Blocks of 48 query rows meet tiles of 48 keys. Scores lie turned, [keys][queries], so that dS is
// the panel that dQ wants; dK and dV want it turned once more. The tiles of a head are dealt out to
// kChunks chunks, each with sums for dQ of its own that are added in order: threads change nothing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "octavo/backend/cpu/attention_backward_pack.h"
#include "octavo/backend/cpu/attention_softmax.h"
#include "octavo/backend/cpu/row_store.h"
#include "octavo/backend/cpu/share.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kChunks = 4;
constexpr std::int64_t kTogetherFloats = std::int64_t{16} << 20;  // of packed heads at a time
constexpr double kLog2E = 1.4426950408889634;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What one thread works in: a tile of keys, and what its keys have to do with a block of rows.
struct Scratch {
  float *k_turned, *k_rows, *v_turned, *scores, *d_p, *p_turned, *d_s_turned, *d_k, *d_v;
  float* added = nullptr;  // to scores, in units of log2; where there is a bias
  std::int64_t floats = 0;

  Scratch(const BackwardSizes& sizes, bool has_bias, float* memory) {
    const auto take = [&](float*& part, std::int64_t count) {
      part = memory != nullptr ? memory + floats : nullptr;
      floats += round_up(count, 16);
    };
    constexpr std::int64_t n = kBackwardSide;
    take(k_turned, n * sizes.padded_depth);
    take(k_rows, n * sizes.padded_depth);
    take(v_turned, n * sizes.padded_width);
    for (float** square : {&scores, &d_p, &p_turned, &d_s_turned}) take(*square, n * n);
    take(d_k, n * sizes.padded_depth);
    take(d_v, n * sizes.padded_width);
    if (has_bias) take(added, n * n);
  }
};

class Backward {
 public:
  Backward(const Isa& isa, const AttentionMethod& method, const Exec& exec,
           const AttentionBackwardJob& job)
      : isa_(isa),
        method_(method),
        exec_(exec),
        job_(job),
        forward_(job.forward),
        sizes_(method.score, forward_.q.first.cols(), forward_.v.first.cols()),
        blocks_(blocks(forward_.queries, kBackwardSide)),
        group_(forward_.heads / std::max<std::int64_t>(1, forward_.kv_heads)),
        block_floats_(sizes_.block_floats() + kChunks * kBackwardSide * sizes_.padded_depth),
        head_floats_(group_ * blocks_ * block_floats_),
        threads_(std::max(1, exec.threads)),
        store_q_(isa, job.d_q.first.values.dtype),
        store_k_(isa, job.d_k.first.values.dtype),
        store_v_(isa, job.d_v.first.values.dtype) {
    const std::int64_t heads = std::max<std::int64_t>(1, forward_.batches * forward_.kv_heads);
    together_ = std::clamp<std::int64_t>(kTogetherFloats / std::max<std::int64_t>(1, head_floats_),
                                         1, heads);
    forward_.p = AttentionP::f32;
    forward_.ranges = nullptr;
    lse_ = forward_.log_sum_exp;
    if (lse_ != nullptr) return;
    // The forward pass: its result, log-sum-exps, and what it works in.
    const std::int64_t rows = forward_.batches * forward_.heads * forward_.queries,
                       width = forward_.v.first.cols();
    out_floats_ = round_up(rows * width, 16);
    lse_floats_ = round_up(rows, 16);
    forward_.out = {.batch_pitch = forward_.heads * forward_.queries * width * 4,
                    .head_pitch = forward_.queries * width * 4};
    forward_.out.first.values = {.data = nullptr,
                                 .dtype = DType::f32,
                                 .rows = forward_.queries,
                                 .cols = width,
                                 .row_pitch = width * 4,
                                 .col_stride = 4};
  }

  [[nodiscard]] std::int64_t workspace() const {
    const std::int64_t own = together_ * head_floats_ + parts() * scratch_floats();
    if (lse_ != nullptr) return own * 4;
    return (out_floats_ + lse_floats_) * 4 +
           std::max(own * 4, round_up(attention_workspace(isa_, method_, exec_, forward_), 64));
  }

  void run() {
    auto* memory = reinterpret_cast<float*>(exec_.workspace.data());
    float* const rest = memory + out_floats_ + lse_floats_;
    if (lse_ == nullptr) attend_again(memory, rest);
    const std::int64_t heads = forward_.batches * forward_.kv_heads;
    for (std::int64_t first = 0; first < heads; first += together_)
      heads_from(first, std::min(heads, first + together_), rest);
  }

 private:
  void attend_again(float* memory, float* rest) {
    forward_.out.first.values.data = memory;
    forward_.log_sum_exp = memory + out_floats_;
    lse_ = forward_.log_sum_exp;
    Exec there = exec_;
    there.workspace = {reinterpret_cast<std::byte*>(rest),
                       static_cast<std::size_t>(exec_.workspace.data() + exec_.workspace.size() -
                                                reinterpret_cast<std::byte*>(rest))};
    attend(isa_, method_, there, forward_);
  }

  [[nodiscard]] int parts() const { return threads_ > 1 ? threads_ * 4 : 1; }
  [[nodiscard]] bool has_bias() const { return forward_.bias.first != nullptr; }
  [[nodiscard]] std::int64_t scratch_floats() const {
    return Scratch(sizes_, has_bias(), nullptr).floats;
  }

  void heads_from(std::int64_t first, std::int64_t last, float* memory) const {
    const std::int64_t per_head = group_ * blocks_;
    share_units((last - first) * per_head, threads_, [&](std::int64_t unit) {
      pack_block(first + unit / per_head, unit % per_head, memory + unit * block_floats_);
    });
    float* const scratches = memory + together_ * head_floats_;
    const std::int64_t units = (last - first) * kChunks;
    share_parts(units, static_cast<int>(std::min<std::int64_t>(units, parts())), threads_,
                [&](int part, std::int64_t begin, std::int64_t end) {
                  const Scratch scratch(sizes_, has_bias(), scratches + part * scratch_floats());
                  for (std::int64_t unit = begin; unit < end; ++unit)
                    chunk(first + unit / kChunks, unit % kChunks,
                          memory + unit / kChunks * head_floats_, scratch);
                });
    share_units((last - first) * per_head, threads_, [&](std::int64_t unit) {
      write_queries(first + unit / per_head, unit % per_head, memory + unit * block_floats_);
    });
  }

  [[nodiscard]] std::int64_t head_of(std::int64_t kv, std::int64_t block) const {
    return kv % forward_.kv_heads * group_ + block / blocks_;
  }

  void pack_block(std::int64_t kv, std::int64_t block, float* memory) const {
    const std::int64_t batch = kv / forward_.kv_heads, head = head_of(kv, block);
    const std::int64_t first = block % blocks_ * kBackwardSide;
    const BackwardBlock to(sizes_, memory);
    const AttentionRows q(isa_, forward_.q.at(batch, head), forward_.values, Split::none),
        d_out(isa_, job_.d_out.at(batch, head), DType::f32, Split::none),
        out(isa_, forward_.out.at(batch, head), DType::f32, Split::none);
    const std::int64_t length =
        forward_.query_lengths != nullptr ? forward_.query_lengths[batch] : forward_.queries;
    const std::int64_t real = std::clamp<std::int64_t>(length - first, 0, kBackwardSide);
    const BackwardPack pack(sizes_);
    pack.both(q, first, real, sizes_.depth, sizes_.cols, to.q_turned, to.q_rows);
    pack.both(d_out, first, real, sizes_.width, sizes_.cols, to.d_turned, to.d_rows);
    for (std::int64_t r = 0; r < kBackwardSide; ++r) {
      to.begin[r] = to.end[r] = 0;
      to.log_sum[r] = to.along[r] = 0.0F;
      if (r >= real) continue;
      const std::int64_t row = (batch * forward_.heads + head) * forward_.queries + first + r;
      const AttentionJob::Keys keys = forward_.keys_of(batch, first + r);
      if (keys.begin >= keys.end || lse_[row] == -HUGE_VALF) continue;
      to.begin[r] = static_cast<std::int32_t>(keys.begin);
      to.end[r] = static_cast<std::int32_t>(keys.end);
      to.log_sum[r] = static_cast<float>(static_cast<double>(lse_[row]) * kLog2E);
      alignas(64) float gradient[kMostHeadSize], output[kMostHeadSize];
      d_out.row(first + r, gradient);
      out.row(first + r, output);
      double along = 0.0;
      for (std::int64_t e = 0; e < sizes_.width; ++e)
        along += static_cast<double>(gradient[e]) * static_cast<double>(output[e]);
      to.along[r] = static_cast<float>(along);
    }
    std::fill_n(memory + sizes_.block_floats(), kChunks * kBackwardSide * sizes_.padded_depth,
                0.0F);
  }

  // Tiles chunk, chunk + kChunks, ... of a head of keys: with a causal mask later ones are seen by
  // fewer rows.
  void chunk(std::int64_t kv, std::int64_t chunk, float* blocks_memory, const Scratch& s) const {
    const std::int64_t batch = kv / forward_.kv_heads, head = kv % forward_.kv_heads;
    const AttentionRows k(isa_, forward_.k.at(batch, head), forward_.values, Split::none),
        v(isa_, forward_.v.at(batch, head), forward_.values, Split::none);
    const std::int64_t length =
        forward_.key_lengths != nullptr ? forward_.key_lengths[batch] : forward_.keys;
    const BackwardPack pack(sizes_);
    for (std::int64_t key = chunk * kBackwardSide; key < forward_.keys;
         key += kChunks * kBackwardSide) {
      const std::int64_t real = std::clamp<std::int64_t>(length - key, 0, kBackwardSide);
      pack.both(k, key, real, sizes_.depth, sizes_.rows, s.k_turned, s.k_rows);
      pack.both(v, key, real, sizes_.width, sizes_.rows, s.v_turned, nullptr);
      std::fill_n(s.d_k, kBackwardSide * sizes_.padded_depth, 0.0F);
      std::fill_n(s.d_v, kBackwardSide * sizes_.padded_width, 0.0F);
      for (std::int64_t block = 0; block < group_ * blocks_; ++block) {
        float* const memory = blocks_memory + block * block_floats_;
        const BackwardBlock rows(sizes_, memory);
        bool any = false;
        for (std::int64_t r = 0; r < kBackwardSide; ++r)
          any |= rows.begin[r] < key + real && rows.end[r] > key;
        if (!any) continue;
        if (has_bias())
          take_bias(batch, head_of(kv, block), block % blocks_ * kBackwardSide, rows, key, s.added);
        meet(rows, key, s,
             memory + sizes_.block_floats() + chunk * kBackwardSide * sizes_.padded_depth);
      }
      write_keys(job_.d_k.at(batch, head).values, store_k_, key, s.d_k);
      write_keys(job_.d_v.at(batch, head).values, store_v_, key, s.d_v);
    }
  }

  // [keys or channels][queries or keys] += A B, panel by panel. `into` is [panels of B][rows][cols]
  // where panels are apart, else [rows][48].
  void product(const float* a, std::int64_t rows, const float* b, std::int64_t depth, float* into,
               bool apart) const {
    const std::int64_t R = sizes_.rows, C = sizes_.cols;
    for (std::int64_t r = 0; r < rows; r += R)
      for (std::int64_t c = 0; c < kBackwardSide; c += C)
        method_.score.run(
            {.a = reinterpret_cast<const std::byte*>(a + r * depth),
             .b = reinterpret_cast<const std::byte*>(b + c * depth),
             .run = depth,
             .runs = 1,
             .a_scale = nullptr,
             .b_scale = nullptr,
             .sums = apart ? into + c * kBackwardSide + r * C : into + r * kBackwardSide + c,
             .pitch = apart ? C : kBackwardSide});
  }

  // Of the keys that rows see; 0 elsewhere. As scores lie.
  void take_bias(std::int64_t batch, std::int64_t head, std::int64_t first,
                 const BackwardBlock& rows, std::int64_t key, float* added) const {
    constexpr std::int64_t n = kBackwardSide;
    const AttentionBias& bias = forward_.bias;
    const auto factor = static_cast<float>(static_cast<double>(bias.factor) * kLog2E);
    std::fill_n(added, n * n, 0.0F);
    for (std::int64_t q = 0; q < n; ++q) {
      if (rows.begin[q] >= rows.end[q]) continue;
      const float* from = bias.at(batch, head, first + q);
      float* const column = added + q / sizes_.cols * sizes_.cols * n + q % sizes_.cols;
      const std::int64_t end = std::min<std::int64_t>(key + n, rows.end[q]);
      for (std::int64_t j = std::max<std::int64_t>(key, rows.begin[q]); j < end; ++j)
        column[(j - key) * sizes_.cols] = from[j * bias.key] * factor;
    }
  }

  // One block of rows and one tile of keys.
  void meet(const BackwardBlock& rows, std::int64_t key, const Scratch& s, float* d_q) const {
    constexpr std::int64_t n = kBackwardSide;
    std::fill_n(s.scores, n * n, 0.0F);
    std::fill_n(s.d_p, n * n, 0.0F);
    product(s.k_turned, n, rows.q_turned, sizes_.depth, s.scores, true);
    product(s.v_turned, n, rows.d_turned, sizes_.width, s.d_p, true);
    weigh(rows, key, s);
    product(rows.d_rows, sizes_.padded_width, s.p_turned, n, s.d_v, false);
    product(rows.q_rows, sizes_.padded_depth, s.d_s_turned, n, s.d_k, false);
    product(s.k_rows, sizes_.padded_depth, s.d_p, n, d_q, false);
    if (rows.d_is_odd()) add_odd(rows, s);
  }

  // Scores become P, turned, and d_p dS, as it lies and turned.
  void weigh(const BackwardBlock& rows, std::int64_t key, const Scratch& s) const {
    constexpr std::int64_t n = kBackwardSide;
    const std::int64_t C = sizes_.cols;
    const float scale = static_cast<float>(forward_.softmax_scale),
                factor = static_cast<float>(static_cast<double>(scale) * kLog2E);
    for (std::int64_t panel = 0; panel < n; panel += C)
      for (std::int64_t j = 0; j < n; ++j) {
        float* score = s.scores + panel * n + j * C;
        for (std::int64_t c = 0; c < C; ++c) score[c] = score[c] * factor - rows.log_sum[panel + c];
      }
    if (s.added != nullptr)
      for (std::int64_t i = 0; i < n * n; ++i) s.scores[i] += s.added[i];
    // One long loop: compilers take short ones apart, and then see no vectors.
    for (std::int64_t i = 0; i < n * n; ++i) s.scores[i] = exp2_of(s.scores[i]);
    const bool plain = s.added == nullptr && rows.all_see(key, key + n);
    for (std::int64_t panel = 0; panel < n; panel += C)
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t at = panel * n + j * C;
        float *p = s.scores + at, *d = s.d_p + at;
        const float* along = rows.along + panel;
        if (!plain)
          for (std::int64_t c = 0; c < C; ++c) {
            const std::int64_t q = panel + c;
            const bool seen = sees(rows, q, key, j, s);
            const bool poisoned = rows.log_sum[q] != rows.log_sum[q];
            p[c] = !seen ? 0.0F : poisoned ? kNaN : p[c];
            d[c] = seen ? d[c] : along[c];
          }
        for (std::int64_t c = 0; c < C; ++c) d[c] = p[c] * (d[c] - along[c]) * scale;
      }
    // Poisoned rows have NaN in `along`, and 0 times that where they do not see.
    if (!plain) clear_unseen(rows, key, s);
    turn(s.scores, s.p_turned);
    turn(s.d_p, s.d_s_turned);
  }

  // A bias of -inf hides a key, whatever it holds.
  [[nodiscard]] bool sees(const BackwardBlock& rows, std::int64_t q, std::int64_t key,
                          std::int64_t j, const Scratch& s) const {
    if (key + j < rows.begin[q] || key + j >= rows.end[q]) return false;
    const std::int64_t C = sizes_.cols;
    return s.added == nullptr || s.added[q / C * C * kBackwardSide + j * C + q % C] !=
                                     -std::numeric_limits<float>::infinity();
  }

  void clear_unseen(const BackwardBlock& rows, std::int64_t key, const Scratch& s) const {
    constexpr std::int64_t n = kBackwardSide;
    for (std::int64_t q = 0; q < n; ++q) {
      if (std::isfinite(rows.along[q]) && std::isfinite(rows.log_sum[q])) continue;
      float* const column = s.d_p + q / sizes_.cols * sizes_.cols * n + q % sizes_.cols;
      for (std::int64_t j = 0; j < n; ++j)
        if (!sees(rows, q, key, j, s)) column[j * sizes_.cols] = 0.0F;
    }
  }

  // [panel of queries][key][query] to [panel of keys][query][key].
  void turn(const float* from, float* to) const {
    constexpr std::int64_t n = kBackwardSide;
    const std::int64_t C = sizes_.cols;
    for (std::int64_t panel = 0; panel < n; panel += C)
      for (std::int64_t keys = 0; keys < n; keys += C)
        turn_square(from + panel * n + keys * C, to + keys * n + panel * C);
  }

  // [cols][cols], four by four, which compilers make permutations of vectors of.
  void turn_square(const float* from, float* to) const {
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

  // What is not finite in dO goes to the values that its row sees, and no others.
  void add_odd(const BackwardBlock& rows, const Scratch& s) const {
    const std::int64_t C = sizes_.cols;
    for (std::int64_t q = 0; q < kBackwardSide; ++q)
      for (std::int64_t e = 0; e < sizes_.width; ++e) {
        const float d = rows.d_turned[q / C * C * sizes_.width + e * C + q % C];
        if (std::isfinite(d)) continue;
        for (std::int64_t j = 0; j < kBackwardSide; ++j) {
          const float p = s.p_turned[j / C * C * kBackwardSide + q * C + j % C];
          if (p != 0.0F) s.d_v[e * kBackwardSide + j] += p * d;
        }
      }
  }

  // [channels][48] to rows.
  void write_keys(const Matrix& to, const RowStore& store, std::int64_t key,
                  const float* sums) const {
    alignas(64) float row[kMostHeadSize];
    for (std::int64_t j = 0; j < std::min(kBackwardSide, to.rows - key); ++j) {
      for (std::int64_t d = 0; d < to.cols; ++d) row[d] = sums[d * kBackwardSide + j];
      store(to, key + j, row);
    }
  }

  void write_queries(std::int64_t kv, std::int64_t block, float* memory) const {
    float* const sums = memory + sizes_.block_floats();
    const std::int64_t n = kBackwardSide * sizes_.padded_depth;
    for (std::int64_t chunk = 1; chunk < kChunks; ++chunk)
      for (std::int64_t i = 0; i < n; ++i) sums[i] += sums[chunk * n + i];
    write_keys(job_.d_q.at(kv / forward_.kv_heads, head_of(kv, block)).values, store_q_,
               block % blocks_ * kBackwardSide, sums);
  }

  const Isa& isa_;
  const AttentionMethod& method_;
  const Exec& exec_;
  const AttentionBackwardJob& job_;
  AttentionJob forward_;
  BackwardSizes sizes_;
  std::int64_t blocks_, group_, block_floats_, head_floats_, together_ = 1, out_floats_ = 0,
                                                             lse_floats_ = 0;
  int threads_;
  RowStore store_q_, store_k_, store_v_;
  const float* lse_ = nullptr;
};

}  // namespace

const AttentionMethod* backward_method(ChooseAttention choose, const AttentionBackwardJob& job) {
  // Places of keys are compared in 32 bits.
  if (job.forward.values == DType::f64 || job.forward.keys > (std::int64_t{1} << 30))
    return nullptr;
  AttentionJob forward = job.forward;
  forward.p = AttentionP::f32;
  const AttentionMethod* method = choose(forward);
  const bool fits = method != nullptr && method->score_lane == Lane::f32 &&
                    method->weigh_lane == Lane::f32 && kBackwardSide % method->score.rows == 0 &&
                    kBackwardSide % method->score.cols == 0 && method->score.step == 1;
  return fits ? method : nullptr;
}

void attend_backward(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                     const AttentionBackwardJob& job) {
  if (job.forward.batches * job.forward.kv_heads == 0) return;  // nothing to write
  Backward(isa, method, exec, job).run();
}

std::int64_t attention_backward_workspace(const Isa& isa, const AttentionMethod& method,
                                          const Exec& exec, const AttentionBackwardJob& job) {
  if (job.forward.batches * job.forward.kv_heads == 0) return 0;
  return Backward(isa, method, exec, job).workspace();
}

}  // namespace octavo::cpu
