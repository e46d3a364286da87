// Up to four query rows against keys and values in e4m3, as they lie in memory. A code is turned
// into a number once for all of them. Where one is NaN, whoever called does it again another way.
#include <arm_neon.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "octavo/backend/cpu/attention_few.h"
#include "octavo/backend/cpu/neon_fp16/e4m3_halves.h"
#include "octavo/backend/cpu/neon_fp16/few_rows.h"
#include "octavo/backend/cpu/neon_fp16/half_tile.h"
#include "octavo/backend/cpu/neon_fp16/neon_fp16_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC moves loads up before it hands out registers, and then runs out of them.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr std::int64_t kRun = 32;  // of weighted values in f16
constexpr std::int64_t kAheadKeys = 64;
constexpr float kRoundedUp = 1.01F;  // more than sixteen roundings in f16

// The largest fields of a key, in each of sixteen columns of kChunk codes.
constexpr std::int64_t kChunk = 128, kMostChunks = kMostHeadSize / kChunk;
using Fields = std::uint8_t[kMostChunks][kFewKeys][16];

// Lanes of four sums, added up: twice in f16, then in f32, because turning it into f32 takes one
// pipe for two cycles. Which lanes are added does not depend on how many sums there are.
[[gnu::always_inline]] inline float32x4_t folded_four(float16x8_t a, float16x8_t b, float16x8_t c,
                                                      float16x8_t d) {
  const float16x8_t twos = vpaddq_f16(vpaddq_f16(a, b), vpaddq_f16(c, d));
  return vpaddq_f32(vcvt_f32_f16(vget_low_f16(twos)), vcvt_high_f32_f16(twos));
}

// Sixteen codes on their way. They are turned into numbers two units before they are multiplied:
// a product that is handed to a pipe before its factors are there waits in front of others.
struct Unit {
  float16x8_t low, high;
  uint8x16_t field;
  [[gnu::always_inline]] void decode(const std::byte* from) {
    const uint8x16_t codes = load_codes(from);
    const E4m3Halves half(codes);
    low = half.low;
    high = half.high;
    field = fields_of(codes);
    asm volatile("" : "+w"(low), "+w"(high));  // or compilers move it to where it is used
  }
};
constexpr int kUnits = 4, kUnitsAhead = 2;  // a turn of them, each in its registers

// Rows of queries, sixteen lanes of each in turn: one address does for all.
template <int kRows>
struct Queries {
  alignas(64) float16_t lanes[kRows * kMostHeadSize];
  Queries(const std::byte* const* q, std::int64_t size) {
    for (std::int64_t d = 0; d < size; d += 16)
      for (int r = 0; r < kRows; ++r) std::memcpy(lanes + kRows * d + 16 * r, q[r] + 2 * d, 32);
  }
};

// kKeys keys for kRows queries.
template <int kKeys, int kRows>
class Dots {
 public:
  Dots(const FewRows& job, const Queries<kRows>& q) : job_(job), q_(q.lanes) {}

  // From key `at` on, as long as there are kKeys; returns the first that is left.
  [[gnu::always_inline]] std::int64_t run(std::int64_t at, float* const* scores,
                                          Fields& fields) const {
    if (at + kKeys > job_.keys) return at;
    return job_.size < kTurn ? run_short(at, scores, fields) : run_turns(at, scores, fields);
  }

 private:
  static constexpr std::int64_t kTurn = 16 * kUnits / kKeys;
  struct Sums;

  [[gnu::always_inline]] std::int64_t run_turns(std::int64_t at, float* const* scores,
                                                Fields& fields) const {
    Unit unit[kUnits];
    const std::int64_t whole = job_.size / kTurn * kTurn;
    const std::byte* keys = job_.rows + at * job_.pitch;
#pragma GCC unroll 2
    for (int u = 0; u < kUnitsAhead; ++u) unit[u].decode(keys + offset(u));
    for (; at + kKeys <= job_.keys; at += kKeys, keys += kKeys * job_.pitch) {
      const bool is_last = at + 2 * kKeys > job_.keys;
      const std::byte* const next = is_last ? keys : keys + kKeys * job_.pitch;
      Sums sums;
      ask_ahead(keys, 0);
      turn(keys, whole > kTurn ? keys + kTurn : next, q_, unit, sums, true);
      for (std::int64_t d = kTurn; d < whole; d += kTurn) {
        ask_ahead(keys, d);
        if (d % kChunk == 0) sums.end_chunk(fields[d / kChunk - 1] + at);
        turn(keys + d, d + kTurn < whole ? keys + d + kTurn : next, q_ + kRows * d, unit, sums,
             false);
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
          vst1q_f32(scores[r] + at, folded_four(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
      } else {
        // Four sums at a time, of one key after the other of each row; where there are fewer, some
        // are there twice.
        constexpr int kSums = kRows * kKeys;
        const auto nth = [&](int n) { return sum[n % kSums / kKeys][n % kKeys]; };
        for (int n = 0; n < kSums; n += 4) {
          float four[4];
          vst1q_f32(four, folded_four(nth(n), nth(n + 1), nth(n + 2), nth(n + 3)));
          for (int j = 0; j < std::min(4, kSums); ++j)
            scores[(n + j) / kKeys][at + (n + j) % kKeys] = four[j];
        }
      }
    }
  };

  // A line of memory for every turn, which is as many bytes.
  [[gnu::always_inline]] void ask_ahead(const std::byte* keys, std::int64_t d) const {
    const std::int64_t n = d / kTurn;
    __builtin_prefetch(keys + (kAheadKeys + n % kKeys) * job_.pitch + n / kKeys * kTurn * kKeys);
  }
  // Unit u of a turn: keys side by side, then the next sixteen codes of each.
  [[nodiscard]] std::int64_t offset(int u) const { return u % kKeys * job_.pitch + u / kKeys * 16; }
  [[gnu::always_inline]] void turn(const std::byte* from, const std::byte* next, const float16_t* q,
                                   Unit (&unit)[kUnits], Sums& sums, bool is_first) const {
#pragma GCC unroll 4
    for (int u = 0; u < kUnits; ++u) {
      const int ahead = (u + kUnitsAhead) % kUnits;
      unit[ahead].decode((u < ahead ? from : next) + offset(ahead));
      sums.add(unit[u], u % kKeys, q + kRows * (u / kKeys) * 16, is_first && u < kKeys);
    }
  }

  const FewRows& job_;
  const float16_t* q_;
};

// What sums of squares of keys are at most: the largest code of a column counts for all of it.
// Returns the largest field.
std::uint8_t bound_squares(Fields& fields, std::int64_t keys, std::int64_t size, float* squares) {
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
    vst1q_f32(squares + i,
              vmulq_n_f32(folded_four(square[0], square[1], square[2], square[3]), kRoundedUp));
  }
  return vmaxvq_u8(most);
}

template <int kRows>
bool dots_of_e4m3(const FewRows& job, const std::byte* const* q, float* const* scores,
                  float* squares) {
  constexpr int kKeys = keys_for(kRows);
  const Queries<kRows> queries(q, job.size);
  static_assert(kFewKeys % 4 == 0);
  alignas(16) Fields fields;
  const std::int64_t at = Dots<kKeys, kRows>(job, queries).run(0, scores, fields);
  if constexpr (kKeys > 1) Dots<1, kRows>(job, queries).run(at, scores, fields);
  return bound_squares(fields, job.keys, job.size, squares) < kNanField;
}

// kSixteens times sixteen columns.
template <int kSixteens, int kRows>
class Weigh {
 public:
  Weigh(const FewRows& job, std::int64_t col, const FewWeights* rows)
      : job_(job), rows_(rows), col_(col) {}

  [[gnu::always_inline]] void run(uint8x16_t& most) const {
    const std::byte* row = job_.rows + col_;
    Unit unit[kUnits] = {};
    if (job_.keys >= kGroup)
#pragma GCC unroll 2
      for (int u = 0; u < kUnitsAhead; ++u) unit[u].decode(row + offset(u));
    for (std::int64_t first = 0; first < job_.keys; first += kRun) {
      const std::int64_t last = std::min(first + kRun, job_.keys);
      Sums sums;
      std::int64_t i = first;
      for (; i + kGroup <= last; i += kGroup, row += kGroup * job_.pitch) {
        const std::byte* next = i + 2 * kGroup <= job_.keys ? row + kGroup * job_.pitch : row;
        group(row, next, i, unit, sums, most,
              std::make_integer_sequence<int, kGroup * kSixteens>());
      }
      for (; i < last; ++i, row += job_.pitch) {
        float16x8_t weight[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) weight[r] = vld1q_dup_f16(lanes(r) + i);
#pragma GCC unroll 8
        for (int j = 0; j < kSixteens; ++j) {
          Unit one;
          one.decode(row + 16 * j);
          most = vmaxq_u8(most, one.field);
          sums.template add<0>(one, j, weight);
        }
      }
      sums.store(rows_, col_);
    }
  }

 private:
  static constexpr int kGroup = 8;  // keys whose weights are one vector
  struct Sums {
    float16x8_t low[kRows][kSixteens], high[kRows][kSixteens];
    [[gnu::always_inline]] Sums() {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < kSixteens; ++j) low[r][j] = high[r][j] = vdupq_n_f16(0);
    }
    template <int kLane>
    [[gnu::always_inline]] void add(const Unit& unit, int j, const float16x8_t (&weight)[kRows]) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        plus_product<kLane>(low[r][j], unit.low, weight[r]);
        plus_product<kLane>(high[r][j], unit.high, weight[r]);
      }
    }
    [[gnu::always_inline]] void store(const FewWeights* rows, std::int64_t col) const {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < kSixteens; ++j) {
          const float32x4_t part[4] = {
              vcvt_f32_f16(vget_low_f16(low[r][j])), vcvt_high_f32_f16(low[r][j]),
              vcvt_f32_f16(vget_low_f16(high[r][j])), vcvt_high_f32_f16(high[r][j])};
#pragma GCC unroll 4
          for (int p = 0; p < 4; ++p) {
            float* to = rows[r].sums + col + 16 * j + 4 * p;
            vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), part[p], rows[r].factor));
          }
        }
    }
  };

  [[nodiscard]] const float16_t* lanes(int r) const {
    return reinterpret_cast<const float16_t*>(rows_[r].lanes);
  }
  [[nodiscard]] std::int64_t offset(int u) const {
    return u / kSixteens * job_.pitch + u % kSixteens * 16;
  }
  // Units of kGroup keys, key by key.
  template <int... kUnit>
  [[gnu::always_inline]] void group(const std::byte* row, const std::byte* next, std::int64_t i,
                                    Unit (&unit)[kUnits], Sums& sums, uint8x16_t& most,
                                    std::integer_sequence<int, kUnit...>) const {
    float16x8_t weight[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weight[r] = vld1q_f16(lanes(r) + i);
    const auto step = [&]<int kAt>() __attribute__((always_inline)) {
      constexpr int kNext = kAt + kUnitsAhead, kAll = kGroup * kSixteens;
      if (kAt % kSixteens % 4 == 0) __builtin_prefetch(row + offset(kAt) + kAheadKeys * job_.pitch);
      unit[kNext % kUnits].decode((kNext < kAll ? row : next) + offset(kNext % kAll));
      most = vmaxq_u8(most, unit[kAt % kUnits].field);
      sums.template add<kAt / kSixteens>(unit[kAt % kUnits], kAt % kSixteens, weight);
    };
    (step.template operator()<kUnit>(), ...);
  }

  const FewRows& job_;
  const FewWeights* rows_;
  std::int64_t col_;
};

template <int kRows>
bool weigh_of_e4m3(const FewRows& job, const FewWeights* rows) {
  constexpr int kSixteens = vectors_for(kRows);
  uint8x16_t most = vdupq_n_u8(0);
  std::int64_t col = 0;
  for (; col + 16 * kSixteens <= job.size; col += 16 * kSixteens)
    Weigh<kSixteens, kRows>(job, col, rows).run(most);
  for (; col < job.size; col += 16) Weigh<1, kRows>(job, col, rows).run(most);
  return vmaxvq_u8(most) < kNanField;
}

bool all_dots_of_e4m3(const FewRows& job, const std::byte* const* q, int count,
                      float* const* scores, float* squares) {
  return for_rows(
      count, [&](int r) { return dots_of_e4m3<1>(job, q + r, scores + r, squares); },
      [&](int r) { return dots_of_e4m3<2>(job, q + r, scores + r, squares); },
      [&](int r) { return dots_of_e4m3<4>(job, q + r, scores + r, squares); });
}
bool all_weigh_of_e4m3(const FewRows& job, const FewWeights* rows, int count) {
  return for_rows(
      count, [&](int r) { return weigh_of_e4m3<1>(job, rows + r); },
      [&](int r) { return weigh_of_e4m3<2>(job, rows + r); },
      [&](int r) { return weigh_of_e4m3<4>(job, rows + r); });
}

void squares_of_e4m3(const FewRows& job, float* squares) {
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
    vst1q_f32(squares + at, folded_four(vaddq_f16(low[0], high[0]), vaddq_f16(low[1], high[1]),
                                        vaddq_f16(low[2], high[2]), vaddq_f16(low[3], high[3])));
  }
}

void lay_halves(const float* q, std::int64_t size, std::byte* laid) {
  neon_fp16_narrow(q, laid, size);
}

}  // namespace

const FewKernels kNeonFp16FewE4m3{all_dots_of_e4m3, all_weigh_of_e4m3, lay_halves, Lane::f16,
                                  squares_of_e4m3};

const FewKernels* neon_fp16_few(const GemmOperand& operand) {
  const Matrix& elements = operand.elements();
  if (!operand.is_quantized())
    return elements.dtype == DType::bf16 && elements.col_stride == 2 ? &kNeonFp16FewBf16 : nullptr;
  const bool per_row = tile_extent(operand.quantized.tile.cols, elements.cols) == elements.cols;
  return elements.format == e4m3fn && elements.col_stride == 1 && per_row ? &kNeonFp16FewE4m3
                                                                          : nullptr;
}

}  // namespace octavo::cpu
