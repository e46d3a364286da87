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
using Doubles = double __attribute__((vector_size(16)));
using TwoFloats = float __attribute__((vector_size(8)));

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

struct Eight {
  Floats part[2];
};
template <LaneSource kSource>
Eight values_at(const void* x, int i) {
  if constexpr (kSource == LaneSource::f32) {
    const float* const from = static_cast<const float*>(x) + i;
    return {load<Floats>(from), load<Floats>(from + 4)};
  } else {
    // Each bf16 between 16 zeros and its neighbour is an f32.
    const auto halves = load<Halves>(static_cast<const std::uint16_t*>(x) + i);
    constexpr Halves kZeros = {};
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    return {
        reinterpret_cast<Floats>(__builtin_shufflevector(kZeros, halves, 0, 8, 1, 9, 2, 10, 3, 11)),
        reinterpret_cast<Floats>(
            __builtin_shufflevector(kZeros, halves, 4, 12, 5, 13, 6, 14, 7, 15))};
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
bool any(Words x) { return (x[0] | x[1] | x[2] | x[3]) != 0; }

// Sums of four lanes each, in f64.
struct WideSums {
  Doubles low = {}, high = {};
  void add(Floats a, Floats b) {
    const Floats both = a + b;
    low += __builtin_convertvector(TwoFloats{both[0], both[1]}, Doubles);
    high += __builtin_convertvector(TwoFloats{both[2], both[3]}, Doubles);
  }
  [[nodiscard]] double sum() const { return (low[0] + high[0]) + (low[1] + high[1]); }
};

// An error of 1 that was rounded up is 1.
float ratio(float error, float magnitude) {
  const float out = error / magnitude;
  return out > 1.0F && out < 1.000001F ? 1.0F : out;
}

// Is a byte of these zero but for its sign?
bool has_zero(const std::uint8_t* codes) {
  using Bytes = std::uint8_t __attribute__((vector_size(16)));
  using Longs = std::uint64_t __attribute__((vector_size(16)));
  Bytes least = load<Bytes>(codes) & 0x7F;
  for (int i = 16; i < kLaneBlock; i += 16) {
    const Bytes next = load<Bytes>(codes + i) & 0x7F;
    least = next < least ? next : least;
  }
  const auto words = reinterpret_cast<Longs>(least);
  const Longs found = (words - 0x0101010101010101U) & ~words & 0x8080808080808080U;
  return (found[0] | found[1]) != 0;
}

// One by one, from element `first` on, where vectors were not enough.
template <LaneSource kSource, typename See>
void for_each(const LaneRow& row, int first, int count, const See& see) {
  for (int i = first; i < first + count; i += 8) {
    const Eight xs = values_at<kSource>(row.x, i);
    const float scale = row.scales[i / row.run];
    for (int lane = 0; lane < 8; ++lane)
      see(xs.part[lane / 4][lane % 4], row.decoded[i + lane] * scale);
  }
}

// Where some relative error of a block is a new maximum, or something was flushed.
template <LaneSource kSource, bool kCount>
void look_closer(const LaneRow& row, int block, LaneSums& sums) {
  for_each<kSource>(row, block * kLaneBlock, kLaneBlock, [&sums](float x, float y) {
    const float a = std::fabs(x), error = std::fabs(x - y);
    if (a == 0.0F) return;
    if (kCount) sums.flushed += y == 0.0F ? 1 : 0;
    if (error > sums.max_relative * a)
      sums.max_relative = std::max(sums.max_relative, ratio(error, a));
  });
}

// The largest error of the stretch, from the largest square.
template <LaneSource kSource>
void note_largest(const LaneRow& row, Floats squares, LaneSums& sums) {
  constexpr float kSurelyNormal = 0x1p-120F;
  const float square = std::max({squares[0], squares[1], squares[2], squares[3]});
  if (square >= kSurelyNormal) {
    sums.max_abs = std::max(sums.max_abs, std::sqrt(square));
  } else if (sums.max_abs * sums.max_abs < kSurelyNormal) {
    for_each<kSource>(row, 0, row.blocks * kLaneBlock, [&sums](float x, float y) {
      sums.max_abs = std::max(sums.max_abs, std::fabs(x - y));
    });
  }
}

// kFlushed: count what is flushed on the way. kRelative: look for larger relative errors.
template <LaneSource kSource, int kRun, bool kFlushed, bool kRelative>
std::uint32_t add(const LaneRow& row, LaneSums& sums) {
  WideSums error2, value2, result2;
  Words flushed = {};
  Floats most = {};
  std::uint32_t beyond = 0;
  for (int block = 0; block < row.blocks; ++block) {
    Floats e2[2] = {}, x2[2] = {}, y2[2] = {};
    Words over = {}, block_beyond = {};
    for (int run = block * kLaneBlock / kRun; run < (block + 1) * kLaneBlock / kRun; ++run) {
      const float scale = row.scales[run];
      Floats run_most = {};
      for (int i = run * kRun; i < (run + 1) * kRun; i += 8) {
        const Eight xs = values_at<kSource>(row.x, i);
        for (int half = 0; half < 2; ++half) {
          const Floats x = xs.part[half], y = load<Floats>(row.decoded + i + 4 * half) * scale;
          const Floats e = x - y, square = e * e;
          e2[half] += square;
          x2[half] += x * x;
          y2[half] += y * y;
          run_most = larger(square, run_most);
          if (kRelative)
            over |= reinterpret_cast<Words>(magnitude(e) > sums.max_relative * magnitude(x));
          if (kFlushed)
            flushed -= reinterpret_cast<Words>(y == 0.0F) & reinterpret_cast<Words>(x != 0.0F);
        }
      }
      most = larger(most, run_most);
      block_beyond |= reinterpret_cast<Words>(run_most > scale * scale * row.most_error2);
    }
    error2.add(e2[0], e2[1]);
    value2.add(x2[0], x2[1]);
    result2.add(y2[0], y2[1]);
    beyond |= static_cast<std::uint32_t>(any(block_beyond)) << block;
    if (kFlushed) {
      if (kRelative && any(over)) look_closer<kSource, false>(row, block, sums);
    } else if ((kRelative && any(over)) || has_zero(row.codes + block * kLaneBlock)) {
      look_closer<kSource, true>(row, block, sums);
    }
  }
  sums.error2 += error2.sum();
  sums.value2 += value2.sum();
  sums.result2 += result2.sum();
  if (kFlushed) sums.flushed += flushed[0] + flushed[1] + flushed[2] + flushed[3];
  note_largest<kSource>(row, most, sums);
  return beyond;
}

template <LaneSource kSource, bool kFlushed, bool kRelative>
std::uint32_t add_run(const LaneRow& row, LaneSums& sums) {
  if (row.run == 16) return add<kSource, 16, kFlushed, kRelative>(row, sums);
  if (row.run == 32) return add<kSource, 32, kFlushed, kRelative>(row, sums);
  return add<kSource, kLaneBlock, kFlushed, kRelative>(row, sums);
}

template <LaneSource kSource>
std::uint32_t add_from(const LaneRow& row, LaneSums& sums) {
  const bool relative = !row.knows_one && sums.max_relative < 1.0F;
  if (row.codes == nullptr)
    return relative ? add_run<kSource, true, true>(row, sums)
                    : add_run<kSource, true, false>(row, sums);
  return relative ? add_run<kSource, false, true>(row, sums)
                  : add_run<kSource, false, false>(row, sums);
}

}  // namespace

std::uint32_t add_lanes(const LaneRow& row, LaneSums& sums) {
  return row.source == LaneSource::bf16 ? add_from<LaneSource::bf16>(row, sums)
                                        : add_from<LaneSource::f32>(row, sums);
}

}  // namespace octavo
