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

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Eight elements in an order that is cheap: as they are, or those at even places first. Pairs of
// bf16 are the halves of a word, so that both come out of one load.
struct Eight {
  Floats part[2];
};
template <LaneSource kSource>
Eight values_at(const void* x, int i) {
  if constexpr (kSource == LaneSource::f32) {
    const float* const from = static_cast<const float*>(x) + i;
    return {load<Floats>(from), load<Floats>(from + 4)};
  } else {
    const auto words = load<Words>(static_cast<const std::uint16_t*>(x) + i);
    return {reinterpret_cast<Floats>(words << 16), reinterpret_cast<Floats>(words & 0xFFFF0000U)};
  }
}
template <LaneSource kSource>
Eight decoded_at(const float* decoded, int i) {
  const Eight out{load<Floats>(decoded + i), load<Floats>(decoded + i + 4)};
  if constexpr (kSource == LaneSource::f32) return out;
  return {__builtin_shufflevector(out.part[0], out.part[1], 0, 2, 4, 6),
          __builtin_shufflevector(out.part[0], out.part[1], 1, 3, 5, 7)};
}

Words magnitude(Floats x) { return reinterpret_cast<Words>(x) & 0x7FFFFFFFU; }
Words larger(Words a, Words b) { return a > b ? a : b; }
std::uint32_t largest(Words x) { return std::max({x[0], x[1], x[2], x[3]}); }
double sum(Floats a, Floats b) {
  const Floats both = a + b;
  return static_cast<double>((both[0] + both[2]) + (both[1] + both[3]));
}

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

// Where some relative error of a block is a new maximum, or something was flushed.
template <LaneSource kSource, bool kCount>
void look_closer(const LaneBlock& block, LaneSums& sums) {
  for (int i = 0; i < kLaneBlock; i += 8) {
    const Eight xs = values_at<kSource>(block.x, i), us = decoded_at<kSource>(block.decoded, i);
    const float scale = block.scales[i / block.run];
    for (int lane = 0; lane < 8; ++lane) {
      const float x = xs.part[lane / 4][lane % 4], y = us.part[lane / 4][lane % 4] * scale;
      const float a = std::fabs(x), error = std::fabs(x - y);
      if (a == 0.0F) continue;
      if (kCount) sums.flushed += y == 0.0F ? 1 : 0;
      if (error > sums.max_relative * a)
        sums.max_relative = std::max(sums.max_relative, ratio(error, a));
    }
  }
}

// kFlushed: count what is flushed on the way. kRelative: look for larger relative errors.
template <LaneSource kSource, int kRun, bool kFlushed, bool kRelative>
std::uint32_t add(const LaneBlock& block, LaneSums& sums) {
  Floats error2[2] = {}, value2[2] = {}, result2[2] = {};
  Words most = {}, over = {}, flushed = {};
  std::uint32_t beyond = 0;
  for (int run = 0; run < kLaneBlock / kRun; ++run) {
    const float scale = block.scales[run];
    Words run_most = {};
    for (int i = run * kRun; i < (run + 1) * kRun; i += 8) {
      const Eight xs = values_at<kSource>(block.x, i), us = decoded_at<kSource>(block.decoded, i);
      for (int half = 0; half < 2; ++half) {
        const Floats x = xs.part[half], y = us.part[half] * scale, e = x - y;
        error2[half] += e * e;
        value2[half] += x * x;
        result2[half] += y * y;
        const Words size = magnitude(e);
        run_most = larger(size, run_most);
        if (kRelative)
          over |=
              reinterpret_cast<Words>(reinterpret_cast<Floats>(size) >
                                      sums.max_relative * reinterpret_cast<Floats>(magnitude(x)));
        if (kFlushed)
          flushed -= reinterpret_cast<Words>(y == 0.0F) & reinterpret_cast<Words>(x != 0.0F);
      }
    }
    most = larger(most, run_most);
    const bool is_beyond = __builtin_bit_cast(float, largest(run_most)) >= block.half_steps[run];
    beyond |= static_cast<std::uint32_t>(is_beyond) << run;
  }
  sums.error2 += sum(error2[0], error2[1]);
  sums.value2 += sum(value2[0], value2[1]);
  sums.result2 += sum(result2[0], result2[1]);
  sums.max_abs = std::max(sums.max_abs, __builtin_bit_cast(float, largest(most)));
  if (kFlushed) {
    sums.flushed += flushed[0] + flushed[1] + flushed[2] + flushed[3];
    if (largest(over) != 0) look_closer<kSource, false>(block, sums);
  } else if (largest(over) != 0 || has_zero(block.codes)) {
    look_closer<kSource, true>(block, sums);
  }
  return beyond;
}

template <LaneSource kSource, bool kFlushed, bool kRelative>
std::uint32_t add_run(const LaneBlock& block, LaneSums& sums) {
  if (block.run == 16) return add<kSource, 16, kFlushed, kRelative>(block, sums);
  if (block.run == 32) return add<kSource, 32, kFlushed, kRelative>(block, sums);
  return add<kSource, kLaneBlock, kFlushed, kRelative>(block, sums);
}

template <LaneSource kSource>
std::uint32_t add_from(const LaneBlock& block, LaneSums& sums) {
  const bool relative = !block.knows_one && sums.max_relative < 1.0F;
  if (block.codes == nullptr)
    return relative ? add_run<kSource, true, true>(block, sums)
                    : add_run<kSource, true, false>(block, sums);
  return relative ? add_run<kSource, false, true>(block, sums)
                  : add_run<kSource, false, false>(block, sums);
}

}  // namespace

std::uint32_t add_lanes(const LaneBlock& block, LaneSums& sums) {
  return block.source == LaneSource::bf16 ? add_from<LaneSource::bf16>(block, sums)
                                          : add_from<LaneSource::f32>(block, sums);
}

}  // namespace octavo
