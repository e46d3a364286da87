// Weighted values of decode attention in e4m3: V is read from memory unpacked and weighted for up
// to four query rows. Where a code is NaN, the caller recomputes the sums (weigh_nonfinite).
#include <arm_neon.h>

#include <algorithm>
#include <utility>

#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_e4m3.h"
#include "octavo/backend/cpu/isa/neon_fp16/decode_attention_rows.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_tile.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr std::int64_t kRun = 32;  // weighted values summed in f16

// kSixteens times sixteen columns.
template <int kSixteens, int kRows>
class Weigh {
 public:
  Weigh(const DecodeRows& job, std::int64_t col, const DecodeWeights* rows)
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
        for (int r = 0; r < kRows; ++r) weight[r] = vld1q_dup_f16(packed(r) + i);
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
    [[gnu::always_inline]] void store(const DecodeWeights* rows, std::int64_t col) const {
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

  [[nodiscard]] const float16_t* packed(int r) const {
    return reinterpret_cast<const float16_t*>(rows_[r].packed);
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
    for (int r = 0; r < kRows; ++r) weight[r] = vld1q_f16(packed(r) + i);
    const auto step = [&]<int kAt>() __attribute__((always_inline)) {
      constexpr int kNext = kAt + kUnitsAhead, kAll = kGroup * kSixteens;
      if (kAt % kSixteens % 4 == 0) __builtin_prefetch(row + offset(kAt) + kAheadKeys * job_.pitch);
      unit[kNext % kUnits].decode((kNext < kAll ? row : next) + offset(kNext % kAll));
      most = vmaxq_u8(most, unit[kAt % kUnits].field);
      sums.template add<kAt / kSixteens>(unit[kAt % kUnits], kAt % kSixteens, weight);
    };
    (step.template operator()<kUnit>(), ...);
  }

  const DecodeRows& job_;
  const DecodeWeights* rows_;
  std::int64_t col_;
};

template <int kRows>
bool weigh_of_e4m3(const DecodeRows& job, const DecodeWeights* rows) {
  constexpr int kSixteens = vectors_for(kRows);
  uint8x16_t most = vdupq_n_u8(0);
  std::int64_t col = 0;
  for (; col + 16 * kSixteens <= job.size; col += 16 * kSixteens)
    Weigh<kSixteens, kRows>(job, col, rows).run(most);
  for (; col < job.size; col += 16) Weigh<1, kRows>(job, col, rows).run(most);
  return vmaxvq_u8(most) < kNanField;
}

}  // namespace

bool decode_weigh_e4m3(const DecodeRows& job, const DecodeWeights* rows, int count) {
  return for_rows(
      count, [&](int r) { return weigh_of_e4m3<1>(job, rows + r); },
      [&](int r) { return weigh_of_e4m3<2>(job, rows + r); },
      [&](int r) { return weigh_of_e4m3<4>(job, rows + r); });
}

}  // namespace octavo::cpu
