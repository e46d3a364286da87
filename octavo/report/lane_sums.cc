#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/report/lane_sums_internal.h"

namespace octavo {
namespace {

// Four lanes, as GCC and Clang have them for every processor: sums in arrays would be stored and
// loaded again for every element.
using Floats = float __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
using SignedHalves = std::int16_t __attribute__((vector_size(16)));
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Longs = std::uint64_t __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(16)));
using FourDoubles = double __attribute__((vector_size(32)));

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

struct Eight {
  Floats part[2];
};
// Each bf16 between 16 zeros and its neighbour is an f32.
Eight widened(Halves halves) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  constexpr Halves kZeros = {};
  return {
      reinterpret_cast<Floats>(__builtin_shufflevector(kZeros, halves, 0, 8, 1, 9, 2, 10, 3, 11)),
      reinterpret_cast<Floats>(
          __builtin_shufflevector(kZeros, halves, 4, 12, 5, 13, 6, 14, 7, 15))};
}

template <LaneSource kSource>
Eight values_at(const void* x, int i) {
  if constexpr (kSource == LaneSource::f32) {
    const float* const from = static_cast<const float*>(x) + i;
    return {load<Floats>(from), load<Floats>(from + 4)};
  } else {
    return widened(load<Halves>(static_cast<const std::uint16_t*>(x) + i));
  }
}

// Results before their scale: decoded already, or bits of codes moved to their place in an f32.
struct Sixteen {
  Floats part[4];
};
template <int kMantissa>
Sixteen results_at(const LaneRow& row, int i) {
  if constexpr (kMantissa == 0) {
    const float* const from = row.decoded + i;
    return {load<Floats>(from), load<Floats>(from + 4), load<Floats>(from + 8),
            load<Floats>(from + 12)};
  } else {
    constexpr Bytes kZeros = {};
    // The sign stays, what the shift makes of it beside the exponent goes.
    constexpr int kShift = kMantissa + 1;
    constexpr auto kKept = static_cast<std::int16_t>(0x8000 | 0x7F00 >> kShift);
    const auto codes = load<Bytes>(row.codes + i);
    const auto low = reinterpret_cast<SignedHalves>(__builtin_shufflevector(
                   kZeros, codes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)),
               high = reinterpret_cast<SignedHalves>(__builtin_shufflevector(
                   kZeros, codes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
    const Eight a = widened(reinterpret_cast<Halves>((low >> kShift) & kKept)),
                b = widened(reinterpret_cast<Halves>((high >> kShift) & kKept));
    return {a.part[0], a.part[1], b.part[0], b.part[1]};
  }
}

Floats magnitude(Floats x) {
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(x) & 0x7FFFFFFFU);
}
// Of numbers that are not negative, whose bits are in the same order: one instruction, where
// floats with their NaN would need several.
Floats larger(Floats a, Floats b) {
  const auto p = reinterpret_cast<Words>(a), q = reinterpret_cast<Words>(b);
  return reinterpret_cast<Floats>(p > q ? p : q);
}
bool any(Words x) {
  const auto longs = reinterpret_cast<Longs>(x);
  return (longs[0] | longs[1]) != 0;
}

// Rounded once where processors do that in one step: a sum may differ by its last bits between
// kinds of processors, and nowhere else.
Floats add_square(Floats sum, Floats x) {
#ifdef __FP_FAST_FMAF
  for (int i = 0; i < 4; ++i) sum[i] = __builtin_fmaf(x[i], x[i], sum[i]);
  return sum;
#else
  return sum + x * x;
#endif
}

// Sums of four lanes each, in f64.
struct WideSums {
  Doubles low = {}, high = {};
  void add(Floats a, Floats b) {
    const FourDoubles wide = __builtin_convertvector(a + b, FourDoubles);
    low += __builtin_shufflevector(wide, wide, 0, 1);
    high += __builtin_shufflevector(wide, wide, 2, 3);
  }
  [[nodiscard]] double sum() const { return (low[0] + high[0]) + (low[1] + high[1]); }
};

// An error of 1 that was rounded up is 1.
float ratio(float error, float magnitude) {
  const float out = error / magnitude;
  return out > 1.0F && out < 1.000001F ? 1.0F : out;
}

// Is a byte of these zero but for its sign? `count` is a multiple of 128.
bool has_zero(const std::uint8_t* codes, int count) {
  const auto smaller = [](Bytes a, Bytes b) { return a < b ? a : b; };
  Bytes least[4] = {Bytes{} + 0x7F, Bytes{} + 0x7F, Bytes{} + 0x7F, Bytes{} + 0x7F};
  for (int i = 0; i < count; i += 64)
    for (int part = 0; part < 4; ++part)
      least[part] = smaller(least[part], load<Bytes>(codes + i + 16 * part) & 0x7F);
  const Bytes all = smaller(smaller(least[0], least[1]), smaller(least[2], least[3]));
  const auto words = reinterpret_cast<Longs>(all);
  const Longs found = (words - 0x0101010101010101U) & ~words & 0x8080808080808080U;
  return (found[0] | found[1]) != 0;
}

// One by one, from element `first` on, where vectors were not enough.
template <LaneSource kSource, int kMantissa, typename See>
void for_each(const LaneRow& row, int first, int count, const See& see) {
  for (int i = first; i < first + count; i += 16) {
    const Eight xs[2] = {values_at<kSource>(row.x, i), values_at<kSource>(row.x, i + 8)};
    const Sixteen us = results_at<kMantissa>(row, i);
    const float scale = row.scales[i / row.run];
    for (int lane = 0; lane < 16; ++lane)
      see(xs[lane / 8].part[lane / 4 % 2][lane % 4], us.part[lane / 4][lane % 4] * scale);
  }
}

// Where some relative error of a block is a new maximum, or something was flushed.
template <LaneSource kSource, int kMantissa, bool kCount>
void look_closer(const LaneRow& row, int block, LaneSums& sums) {
  for_each<kSource, kMantissa>(row, block * kLaneBlock, kLaneBlock, [&sums](float x, float y) {
    const float a = std::fabs(x), error = std::fabs(x - y);
    if (a == 0.0F) return;
    if (kCount) sums.flushed += y == 0.0F ? 1 : 0;
    if (error > sums.max_relative * a)
      sums.max_relative = std::max(sums.max_relative, ratio(error, a));
  });
}

// The largest error of the stretch, from the largest square.
template <LaneSource kSource, int kMantissa>
void note_largest(const LaneRow& row, Floats squares, LaneSums& sums) {
  constexpr float kSurelyNormal = 0x1p-120F;
  const float square = std::max({squares[0], squares[1], squares[2], squares[3]});
  if (square >= kSurelyNormal) {
    sums.max_abs = std::max(sums.max_abs, std::sqrt(square));
  } else if (sums.max_abs * sums.max_abs < kSurelyNormal) {
    for_each<kSource, kMantissa>(row, 0, row.blocks * kLaneBlock, [&sums](float x, float y) {
      sums.max_abs = std::max(sums.max_abs, std::fabs(x - y));
    });
  }
}

// kFlushed: count what is flushed on the way. kRelative: look for larger relative errors.
template <LaneSource kSource, int kMantissa, int kRun, bool kFlushed, bool kRelative>
std::uint32_t add(const LaneRow& row, LaneSums& sums) {
  WideSums error2, value2, result2;
  Words flushed = {};
  Floats most = {};
  std::uint32_t beyond = 0;
  const bool zeros = !kFlushed && has_zero(row.codes, row.blocks * kLaneBlock);
  for (int block = 0; block < row.blocks; ++block) {
    Floats e2[2] = {}, x2[2] = {}, y2[2] = {};
    Words over = {}, block_beyond = {};
    for (int run = block * kLaneBlock / kRun; run < (block + 1) * kLaneBlock / kRun; ++run) {
      const float scale = row.scales[run];
      Floats run_most[2] = {};
      // By 16: the processor then has enough to do while it waits for loads.
      for (int i = run * kRun; i < (run + 1) * kRun; i += 16) {
        const Eight first = values_at<kSource>(row.x, i), second = values_at<kSource>(row.x, i + 8);
        const Floats xs[4] = {first.part[0], first.part[1], second.part[0], second.part[1]};
        const Sixteen us = results_at<kMantissa>(row, i);
        for (int part = 0; part < 4; ++part) {
          const Floats x = xs[part], y = us.part[part] * scale;
          const Floats e = x - y, square = e * e;
          e2[part % 2] += square;
          x2[part % 2] = add_square(x2[part % 2], x);
          y2[part % 2] = add_square(y2[part % 2], y);
          run_most[part % 2] = larger(square, run_most[part % 2]);
          if (kRelative)
            over |= reinterpret_cast<Words>(magnitude(e) > sums.max_relative * magnitude(x));
          if (kFlushed)
            flushed -= reinterpret_cast<Words>(y == 0.0F) & reinterpret_cast<Words>(x != 0.0F);
        }
      }
      const Floats larger_of_run = larger(run_most[0], run_most[1]);
      most = larger(most, larger_of_run);
      const float value_scale = scale * row.unit;
      block_beyond |=
          reinterpret_cast<Words>(larger_of_run > row.most_error2 * value_scale * value_scale);
    }
    error2.add(e2[0], e2[1]);
    value2.add(x2[0], x2[1]);
    result2.add(y2[0], y2[1]);
    beyond |= static_cast<std::uint32_t>(any(block_beyond)) << block;
    if (kFlushed) {
      if (kRelative && any(over)) look_closer<kSource, kMantissa, false>(row, block, sums);
    } else if ((kRelative && any(over)) ||
               (zeros && has_zero(row.codes + block * kLaneBlock, kLaneBlock))) {
      look_closer<kSource, kMantissa, true>(row, block, sums);
    }
  }
  sums.error2 += error2.sum();
  sums.value2 += value2.sum();
  sums.result2 += result2.sum();
  if (kFlushed) sums.flushed += flushed[0] + flushed[1] + flushed[2] + flushed[3];
  note_largest<kSource, kMantissa>(row, most, sums);
  return beyond;
}

template <LaneSource kSource, int kMantissa, bool kFlushed, bool kRelative>
std::uint32_t add_run(const LaneRow& row, LaneSums& sums) {
  if (row.run == 16) return add<kSource, kMantissa, 16, kFlushed, kRelative>(row, sums);
  if (row.run == 32) return add<kSource, kMantissa, 32, kFlushed, kRelative>(row, sums);
  return add<kSource, kMantissa, kLaneBlock, kFlushed, kRelative>(row, sums);
}

template <LaneSource kSource, int kMantissa, bool kFlushed>
std::uint32_t add_from(const LaneRow& row, LaneSums& sums) {
  const bool relative = !row.knows_one && sums.max_relative < 1.0F;
  return relative ? add_run<kSource, kMantissa, kFlushed, true>(row, sums)
                  : add_run<kSource, kMantissa, kFlushed, false>(row, sums);
}

template <LaneSource kSource>
std::uint32_t add_stretch(const LaneRow& row, LaneSums& sums) {
  if (row.codes == nullptr) return add_from<kSource, 0, true>(row, sums);
  if (row.decoded != nullptr) return add_from<kSource, 0, false>(row, sums);
  return row.mantissa_bits == 3 ? add_from<kSource, 3, false>(row, sums)
                                : add_from<kSource, 2, false>(row, sums);
}

}  // namespace

std::uint32_t add_lanes(const LaneRow& row, LaneSums& sums) {
  return row.source == LaneSource::bf16 ? add_stretch<LaneSource::bf16>(row, sums)
                                        : add_stretch<LaneSource::f32>(row, sums);
}

}  // namespace octavo
