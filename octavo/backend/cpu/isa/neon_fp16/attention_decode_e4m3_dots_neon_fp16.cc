// Scores of decode attention in e4m3: dots of up to four query rows with keys read from memory
// unpacked, and upper bounds of the keys' sums of squares. Where a code is NaN, the caller
// recomputes the scores (score_nonfinite).
#include <arm_neon.h>

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_e4m3.h"
#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_rows.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr float kRoundedUp = 1.01F;  // more than sixteen roundings in f16

// The largest code fields of a key, in each of sixteen columns of kChunk codes.
constexpr std::int64_t kChunk = 128, kMaxChunks = kMaxHeadSize / kChunk;
using Fields = std::uint8_t[kMaxChunks][kDecodeKeys][16];

// Horizontal sums of four vectors: pairwise twice in f16, then in f32, because converting to f32
// occupies one pipe for two cycles. The order of lanes does not depend on the number of sums.
[[gnu::always_inline]] inline float32x4_t reduced_four(float16x8_t a, float16x8_t b, float16x8_t c,
                                                       float16x8_t d) {
  const float16x8_t twos = vpaddq_f16(vpaddq_f16(a, b), vpaddq_f16(c, d));
  return vpaddq_f32(vcvt_f32_f16(vget_low_f16(twos)), vcvt_high_f32_f16(twos));
}

// Query rows interleaved by sixteen elements, so that one address serves all.
template <int kRows>
struct Queries {
  alignas(64) float16_t packed[kRows * kMaxHeadSize];
  Queries(const std::byte* const* q, std::int64_t size) {
    for (std::int64_t d = 0; d < size; d += 16)
      for (int r = 0; r < kRows; ++r) std::memcpy(packed + kRows * d + 16 * r, q[r] + 2 * d, 32);
  }
};

// kKeys keys for kRows queries.
template <int kKeys, int kRows>
class Dots {
 public:
  Dots(const DecodeRows& job, const Queries<kRows>& q) : job_(job), q_(q.packed) {}

  // From key `at` on, while kKeys are left; returns the first remaining key.
  [[gnu::always_inline]] std::int64_t run(std::int64_t at, float* const* scores,
                                          Fields& fields) const {
    if (at + kKeys > job_.keys) return at;
    return job_.size < kPipelineStep ? run_short(at, scores, fields)
                                     : run_pipelined(at, scores, fields);
  }

 private:
  static constexpr std::int64_t kPipelineStep = 16 * kUnits / kKeys;
  struct Sums;

  [[gnu::always_inline]] std::int64_t run_pipelined(std::int64_t at, float* const* scores,
                                                    Fields& fields) const {
    Unit unit[kUnits];
    const std::int64_t whole = job_.size / kPipelineStep * kPipelineStep;
    const std::byte* keys = job_.rows + at * job_.pitch;
#pragma GCC unroll 2
    for (int u = 0; u < kUnitsAhead; ++u) unit[u].decode(keys + offset(u));
    for (; at + kKeys <= job_.keys; at += kKeys, keys += kKeys * job_.pitch) {
      const bool is_last = at + 2 * kKeys > job_.keys;
      const std::byte* const next = is_last ? keys : keys + kKeys * job_.pitch;
      Sums sums;
      ask_ahead(keys, 0);
      pipeline_step(keys, whole > kPipelineStep ? keys + kPipelineStep : next, q_, unit, sums,
                    true);
      for (std::int64_t d = kPipelineStep; d < whole; d += kPipelineStep) {
        ask_ahead(keys, d);
        if (d % kChunk == 0) sums.end_chunk(fields[d / kChunk - 1] + at);
        pipeline_step(keys + d, d + kPipelineStep < whole ? keys + d + kPipelineStep : next,
                      q_ + kRows * d, unit, sums, false);
      }
      add_rest(keys, at, whole, sums, fields);
      sums.store(at, scores);
      sums.end_chunk(fields[(job_.size - 1) / kChunk] + at);
    }
    return at;
  }
  std::int64_t run_short(std::int64_t at, float* const* scores, Fields& fields) const {
    for (; at + kKeys <= job_.keys; at += kKeys) {
      Sums sums{};
      add_rest(job_.rows + at * job_.pitch, at, 0, sums, fields);
      sums.store(at, scores);
      sums.end_chunk(fields[0] + at);
    }
    return at;
  }
  [[gnu::always_inline]] void add_rest(const std::byte* keys, std::int64_t at, std::int64_t d,
                                       Sums& sums, Fields& fields) const {
    for (; d < job_.size; d += 16) {
      if (d > 0 && d % kChunk == 0) sums.end_chunk(fields[d / kChunk - 1] + at);
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        Unit one;
        one.decode(keys + i * job_.pitch + d);
        sums.add(one, i, q_ + kRows * d, false);
      }
    }
  }

  struct Sums {
    float16x8_t low[kRows][kKeys], high[kRows][kKeys];
    uint8x16_t field[kKeys];

    [[gnu::always_inline]] void add(const Unit& unit, int i, const float16_t* q, bool is_first) {
      field[i] = is_first ? unit.field : vmaxq_u8(field[i], unit.field);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const float16x8_t left = vld1q_f16(q + 16 * r), right = vld1q_f16(q + 16 * r + 8);
        low[r][i] = is_first ? vmulq_f16(unit.low, left) : vfmaq_f16(low[r][i], unit.low, left);
        high[r][i] =
            is_first ? vmulq_f16(unit.high, right) : vfmaq_f16(high[r][i], unit.high, right);
      }
    }

    [[gnu::always_inline]] void end_chunk(std::uint8_t (*fields)[16]) {
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        vst1q_u8(fields[i], field[i]);
        field[i] = vdupq_n_u8(0);
      }
    }

    [[gnu::always_inline]] void store(std::int64_t at, float* const* scores) const {
      float16x8_t sum[kRows][kKeys];
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][i] = vaddq_f16(low[r][i], high[r][i]);
      }
      if constexpr (kKeys == 4) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          vst1q_f32(scores[r] + at, reduced_four(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
      } else {
        // Four sums at a time, of one key after the other of each row; where there are fewer, some
        // are duplicated.
        constexpr int kSums = kRows * kKeys;
        const auto nth = [&](int n) { return sum[n % kSums / kKeys][n % kKeys]; };
        for (int n = 0; n < kSums; n += 4) {
          float four[4];
          vst1q_f32(four, reduced_four(nth(n), nth(n + 1), nth(n + 2), nth(n + 3)));
          for (int j = 0; j < std::min(4, kSums); ++j)
            scores[(n + j) / kKeys][at + (n + j) % kKeys] = four[j];
        }
      }
    }
  };

  // Prefetches one cache line per pipeline step, which reads as many bytes.
  [[gnu::always_inline]] void ask_ahead(const std::byte* keys, std::int64_t d) const {
    const std::int64_t n = d / kPipelineStep;
    __builtin_prefetch(keys + (kAheadKeys + n % kKeys) * job_.pitch +
                       n / kKeys * kPipelineStep * kKeys);
  }
  // The offset of unit u of a pipeline step: neighbouring keys first, then the next sixteen codes
  // of each.
  [[nodiscard]] std::int64_t offset(int u) const { return u % kKeys * job_.pitch + u / kKeys * 16; }
  [[gnu::always_inline]] void pipeline_step(const std::byte* from, const std::byte* next,
                                            const float16_t* q, Unit (&unit)[kUnits], Sums& sums,
                                            bool is_first) const {
#pragma GCC unroll 4
    for (int u = 0; u < kUnits; ++u) {
      const int ahead = (u + kUnitsAhead) % kUnits;
      unit[ahead].decode((u < ahead ? from : next) + offset(ahead));
      sums.add(unit[u], u % kKeys, q + kRows * (u / kKeys) * 16, is_first && u < kKeys);
    }
  }

  const DecodeRows& job_;
  const float16_t* q_;
};

// Upper bounds of the sums of squares of keys: the largest code of a column counts for all of it.
// Returns the largest field.
std::uint8_t bound_row_squares(Fields& fields, std::int64_t keys, std::int64_t size,
                               float* most_row_squares) {
  const std::int64_t chunks = (size + kChunk - 1) / kChunk;
  for (std::int64_t c = 0; c < chunks; ++c)
    std::memset(fields[c] + keys, 0, static_cast<std::size_t>(-keys & 3) * sizeof fields[c][0]);
  uint8x16_t most = vdupq_n_u8(0);
  for (std::int64_t i = 0; i < keys; i += 4) {
    float16x8_t square[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) square[j] = vdupq_n_f16(0);
    for (std::int64_t c = 0; c < chunks; ++c) {
      const auto rows = static_cast<float16_t>(std::min(kChunk, size - c * kChunk) / 16);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const uint8x16_t field = vld1q_u8(fields[c][i + j]);
        const float16x8_t left = vreinterpretq_f16_u16(vshll_n_u8(vget_low_u8(field), 7)),
                          right = vreinterpretq_f16_u16(vshll_high_n_u8(field, 7));
        most = vmaxq_u8(most, field);
        square[j] =
            vfmaq_f16(square[j], vfmaq_f16(vmulq_f16(left, left), right, right), vdupq_n_f16(rows));
      }
    }
    vst1q_f32(most_row_squares + i,
              vmulq_n_f32(reduced_four(square[0], square[1], square[2], square[3]), kRoundedUp));
  }
  return vmaxvq_u8(most);
}

template <int kRows>
bool dots_of_e4m3(const DecodeRows& job, const std::byte* const* q, float* const* scores,
                  float* most_row_squares) {
  constexpr int kKeys = keys_for(kRows);
  const Queries<kRows> queries(q, job.size);
  static_assert(kDecodeKeys % 4 == 0);
  alignas(16) Fields fields;
  const std::int64_t at = Dots<kKeys, kRows>(job, queries).run(0, scores, fields);
  if constexpr (kKeys > 1) Dots<1, kRows>(job, queries).run(at, scores, fields);
  return bound_row_squares(fields, job.keys, job.size, most_row_squares) < kNanField;
}

}  // namespace

bool decode_dots_e4m3(const DecodeRows& job, const std::byte* const* q, int count,
                      float* const* scores, float* most_row_squares) {
  return for_rows(
      count, [&](int r) { return dots_of_e4m3<1>(job, q + r, scores + r, most_row_squares); },
      [&](int r) { return dots_of_e4m3<2>(job, q + r, scores + r, most_row_squares); },
      [&](int r) { return dots_of_e4m3<4>(job, q + r, scores + r, most_row_squares); });
}

void decode_row_squares_e4m3(const DecodeRows& job, float* row_squares) {
  constexpr int kKeys = 4;
  for (std::int64_t at = 0; at < job.keys; at += kKeys) {
    const std::byte* keys[kKeys];
    float16x8_t low[kKeys], high[kKeys];
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      keys[i] = job.rows + std::min(at + i, job.keys - 1) * job.pitch;
      low[i] = high[i] = vdupq_n_f16(0);
    }
    for (std::int64_t d = 0; d < job.size; d += 16)
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        const E4m3Halves half(load_codes(keys[i] + d));
        low[i] = vfmaq_f16(low[i], half.low, half.low);
        high[i] = vfmaq_f16(high[i], half.high, half.high);
      }
    vst1q_f32(row_squares + at,
              reduced_four(vaddq_f16(low[0], high[0]), vaddq_f16(low[1], high[1]),
                           vaddq_f16(low[2], high[2]), vaddq_f16(low[3], high[3])));
  }
}

}  // namespace octavo::cpu
