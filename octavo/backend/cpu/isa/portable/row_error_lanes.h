// Kernels::row_error on vectors of four f32, as GCC and Clang have them for every processor. Steps
// that an instruction set does in one instruction, where a compiler takes several, are those of a
// struct `Steps`:
//   static Floats distance(Floats a, Floats b);       |a - b|
//   static Floats add_square(Floats sum, Floats x);   sum + x^2, as kSquaresAreFused has it
//   static constexpr bool kReadsCodes;                and if so:
//   template <int kMantissa> static TwoHalves moved(Bytes codes);
// where moved() puts sign, exponent and mantissa of codes where a bf16 has its sign, the end of its
// exponent, and the beginning of its mantissa.
//
// Everything here has internal linkage on purpose: each instruction set compiles it for itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "octavo/backend/row_error_job.h"

namespace octavo::cpu {
namespace {

using Floats = float __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));
using Halves = std::uint16_t __attribute__((vector_size(16)));
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

struct TwoFloats {
  Floats low, high;
};
struct TwoHalves {
  Halves low, high;
};

// Each bf16 between 16 zeros and its neighbour is an f32.
inline TwoFloats widened(Halves halves) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  constexpr Halves kZeros = {};
  return {
      reinterpret_cast<Floats>(__builtin_shufflevector(kZeros, halves, 0, 8, 1, 9, 2, 10, 3, 11)),
      reinterpret_cast<Floats>(
          __builtin_shufflevector(kZeros, halves, 4, 12, 5, 13, 6, 14, 7, 15))};
}

template <bool kBf16>
TwoFloats values_at(const void* x, int i) {
  if constexpr (!kBf16) {
    const float* const from = static_cast<const float*>(x) + i;
    return {load<Floats>(from), load<Floats>(from + 4)};
  } else {
    return widened(load<Halves>(static_cast<const std::uint16_t*>(x) + i));
  }
}

// Sixteen values, and results before their scale: decoded already, or bits of codes moved to their
// place in an f32.
struct Sixteen {
  Floats x[4], y[4];
};
template <typename Steps, bool kBf16, int kMantissa>
Sixteen sixteen_at(const RowErrorJob& row, int i) {
  Sixteen out;
  for (int half = 0; half < 2; ++half) {
    const TwoFloats x = values_at<kBf16>(row.x, i + 8 * half);
    out.x[2 * half] = x.low;
    out.x[2 * half + 1] = x.high;
  }
  if constexpr (kMantissa == 0) {
    for (int part = 0; part < 4; ++part) out.y[part] = load<Floats>(row.decoded + i + 4 * part);
  } else {
    const TwoHalves halves = Steps::template moved<kMantissa>(load<Bytes>(row.codes + i));
    const TwoFloats low = widened(halves.low), high = widened(halves.high);
    out.y[0] = low.low;
    out.y[1] = low.high;
    out.y[2] = high.low;
    out.y[3] = high.high;
  }
  return out;
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

// Sums of four lanes each, in f64.
struct WideSums {
  Doubles pairs = {};
  void add(Floats a, Floats b) {
    const FourDoubles wide = __builtin_convertvector(a + b, FourDoubles);
    pairs += __builtin_shufflevector(wide, wide, 0, 1) + __builtin_shufflevector(wide, wide, 2, 3);
  }
  [[nodiscard]] double sum() const { return pairs[0] + pairs[1]; }
};

// An error of 1 that was rounded up is 1.
float ratio(float error, float magnitude) {
  const float out = error / magnitude;
  return out > 1.0F && out < 1.000001F ? 1.0F : out;
}

Bytes smaller(Bytes a, Bytes b) { return a < b ? a : b; }
bool any_zero(Bytes bytes) {
  const auto words = reinterpret_cast<Longs>(bytes);
  const Longs found = (words - 0x0101010101010101U) & ~words & 0x8080808080808080U;
  return (found[0] | found[1]) != 0;
}
constexpr Bytes kMaxField = Bytes{} + 0x7F;
// Is a byte of these zero but for its sign? `count` is a multiple of 128.
bool has_zero(const std::uint8_t* codes, int count) {
  Bytes least[4] = {kMaxField, kMaxField, kMaxField, kMaxField};
  for (int i = 0; i < count; i += 64)
    for (int part = 0; part < 4; ++part)
      least[part] = smaller(least[part], load<Bytes>(codes + i + 16 * part) & 0x7F);
  return any_zero(smaller(smaller(least[0], least[1]), smaller(least[2], least[3])));
}

// Scalar pass over the elements of a block, where the vector pass is not enough.
template <typename Steps, bool kBf16, int kMantissa, typename See>
void for_each(const RowErrorJob& row, int block, const See& see) {
  for (int i = block * kErrorBlock; i < (block + 1) * kErrorBlock; i += 16) {
    const Sixteen of = sixteen_at<Steps, kBf16, kMantissa>(row, i);
    const float scale = row.scales[i / row.run];
    for (int lane = 0; lane < 16; ++lane)
      see(of.x[lane / 4][lane % 4], of.y[lane / 4][lane % 4] * scale);
  }
}

// Where some relative error of a block is a new maximum.
template <typename Steps, bool kBf16, int kMantissa>
void find_relative_maximum(const RowErrorJob& row, int block, RowErrorSums& sums) {
  for_each<Steps, kBf16, kMantissa>(row, block, [&sums](float x, float y) {
    const float a = std::fabs(x), error = std::fabs(x - y);
    if (a != 0.0F && error > sums.max_relative * a)
      sums.max_relative = std::max(sums.max_relative, ratio(error, a));
  });
}

// Where codes show that there is a zero.
template <typename Steps, bool kBf16, int kMantissa>
void count_flushed(const RowErrorJob& row, RowErrorSums& sums) {
  for (int block = 0; block < row.blocks; ++block)
    if (has_zero(row.codes + block * kErrorBlock, kErrorBlock))
      for_each<Steps, kBf16, kMantissa>(row, block, [&sums](float x, float y) {
        sums.flushed += x != 0.0F && y == 0.0F ? 1 : 0;
      });
}

// Of a block, and of all blocks.
struct BlockSums {
  Floats error2[2] = {}, value2[2] = {}, result2[2] = {};
  Words over = {}, beyond = {};
};
struct StretchSums {
  WideSums error2, value2, result2;
  Floats most = {};
  Words flushed = {};
  Bytes least = kMaxField;
};

// As many elements as fit the vector registers. Each step is done for all of them before the next
// one (interleaved), to hide the latency of a dependency chain.
template <typename Steps, bool kBf16, int kMantissa, int kCount, bool kFlushed, bool kRelative>
[[gnu::always_inline]] inline void add_elements(const RowErrorJob& row, int first, float scale,
                                                float max_relative, BlockSums& block,
                                                StretchSums& all, Floats (&most)[2]) {
  constexpr int kParts = kCount / 4;
  Floats x[kParts], y[kParts], error[kParts];
  for (int i = 0; i < kCount / 16; ++i) {
    const Sixteen of = sixteen_at<Steps, kBf16, kMantissa>(row, first + 16 * i);
    for (int part = 0; part < 4; ++part) {
      x[4 * i + part] = of.x[part];
      y[4 * i + part] = of.y[part];
    }
    if constexpr (kMantissa > 0)
      all.least = smaller(all.least, load<Bytes>(row.codes + first + 16 * i) & 0x7F);
  }
  for (Floats& of : y) of *= scale;
  for (int i = 0; i < kParts; ++i)
    block.value2[i % 2] = Steps::add_square(block.value2[i % 2], x[i]);
  for (int i = 0; i < kParts; ++i) error[i] = Steps::distance(x[i], y[i]);
  for (int i = 0; i < kParts; ++i)
    block.result2[i % 2] = Steps::add_square(block.result2[i % 2], y[i]);
  for (int i = 0; i < kParts; ++i) most[i % 2] = larger(most[i % 2], error[i]);
  for (int i = 0; i < kParts; ++i)
    block.error2[i % 2] = Steps::add_square(block.error2[i % 2], error[i]);
  if (kRelative)
    for (int i = 0; i < kParts; ++i)
      block.over |= reinterpret_cast<Words>(error[i] > max_relative * magnitude(x[i]));
  if (kFlushed)
    for (int i = 0; i < kParts; ++i)
      all.flushed -= reinterpret_cast<Words>(y[i] == 0.0F) & reinterpret_cast<Words>(x[i] != 0.0F);
}

// kFlushed: count what is flushed on the way. kRelative: search for larger relative errors.
template <typename Steps, bool kBf16, int kMantissa, int kRun, bool kFlushed, bool kRelative>
std::uint32_t add(const RowErrorJob& row, RowErrorSums& sums) {
  constexpr int kCount = std::min(kRun, 32);
  StretchSums all;
  std::uint32_t beyond = 0;
  for (int block = 0; block < row.blocks; ++block) {
    BlockSums of;
    for (int run = block * kErrorBlock / kRun; run < (block + 1) * kErrorBlock / kRun; ++run) {
      const float scale = row.scales[run];
      Floats most[2] = {};
      for (int i = run * kRun; i < (run + 1) * kRun; i += kCount)
        add_elements<Steps, kBf16, kMantissa, kCount, kFlushed, kRelative>(
            row, i, scale, sums.max_relative, of, all, most);
      const Floats most_of_run = larger(most[0], most[1]);
      all.most = larger(all.most, most_of_run);
      of.beyond |= reinterpret_cast<Words>(most_of_run > row.most_error * scale);
    }
    all.error2.add(of.error2[0], of.error2[1]);
    all.value2.add(of.value2[0], of.value2[1]);
    all.result2.add(of.result2[0], of.result2[1]);
    beyond |= static_cast<std::uint32_t>(any(of.beyond)) << block;
    if (kRelative && any(of.over)) find_relative_maximum<Steps, kBf16, kMantissa>(row, block, sums);
  }
  sums.error2 += all.error2.sum();
  sums.value2 += all.value2.sum();
  sums.result2 += all.result2.sum();
  for (int i = 0; i < 4; ++i) sums.max_abs = std::max(sums.max_abs, all.most[i]);
  if constexpr (kFlushed) {
    for (int i = 0; i < 4; ++i) sums.flushed += all.flushed[i];
  } else if (kMantissa > 0 ? any_zero(all.least) : has_zero(row.codes, row.blocks * kErrorBlock)) {
    count_flushed<Steps, kBf16, kMantissa>(row, sums);
  }
  return beyond;
}

template <typename Steps, bool kBf16, int kMantissa, bool kFlushed, bool kRelative>
std::uint32_t add_run(const RowErrorJob& row, RowErrorSums& sums) {
  if (row.run == 16) return add<Steps, kBf16, kMantissa, 16, kFlushed, kRelative>(row, sums);
  if (row.run == 32) return add<Steps, kBf16, kMantissa, 32, kFlushed, kRelative>(row, sums);
  return add<Steps, kBf16, kMantissa, kErrorBlock, kFlushed, kRelative>(row, sums);
}

template <typename Steps, bool kBf16, int kMantissa, bool kFlushed>
std::uint32_t add_from(const RowErrorJob& row, RowErrorSums& sums) {
  const bool relative = !row.knows_one && sums.max_relative < 1.0F;
  return relative ? add_run<Steps, kBf16, kMantissa, kFlushed, true>(row, sums)
                  : add_run<Steps, kBf16, kMantissa, kFlushed, false>(row, sums);
}

template <typename Steps, bool kBf16>
std::uint32_t add_stretch(const RowErrorJob& row, RowErrorSums& sums) {
  if (row.codes == nullptr) return add_from<Steps, kBf16, 0, true>(row, sums);
  if constexpr (Steps::kReadsCodes) {
    if (row.decoded == nullptr)
      return row.mantissa_bits == 3 ? add_from<Steps, kBf16, 3, false>(row, sums)
                                    : add_from<Steps, kBf16, 2, false>(row, sums);
  }
  return add_from<Steps, kBf16, 0, false>(row, sums);
}

template <typename Steps>
std::uint32_t add_row_error(const RowErrorJob& row, RowErrorSums& sums) {
  return row.is_bf16 ? add_stretch<Steps, true>(row, sums) : add_stretch<Steps, false>(row, sums);
}

// Where a processor has nothing of its own.
struct PortableSteps {
  // Bits of codes moved to where f32 has them are often subnormal, which costs some processors
  // dearly: codes are decoded beforehand.
  static constexpr bool kReadsCodes = false;

  static Floats distance(Floats a, Floats b) {
    return reinterpret_cast<Floats>(reinterpret_cast<Words>(a - b) & 0x7FFFFFFFU);
  }

  static Floats add_square(Floats sum, Floats x) {
    if constexpr (!kSquaresAreFused) return sum + x * x;
    for (int i = 0; i < 4; ++i) sum[i] = __builtin_fmaf(x[i], x[i], sum[i]);
    return sum;
  }
};

}  // namespace
}  // namespace octavo::cpu
