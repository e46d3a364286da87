// The search of policy mse for scales of tiles in E2M1, as many tiles at a time as there are lanes,
// a tile to a lane.
//
// NVFP4 by integers (portable/fp4_search_bounds.h): two values of a tile are the words of its lane,
// so that a multiplication that adds neighbours sums up a tile. Operations for sixteen values:
//                                                     AVX-512          AVX2
//   fixed point and the transpose                     5                9
//   nine codes: product, index, value, difference,
//     squares, sum                                    9 x 3 = 27       9 x 11 = 99
//   bounds and choice, 12 for a code and all lanes    7                14
//   sums in f32 of one tile in 27                     6                9
// in all 45 on two ports, and 131 on three. Beside them `max` takes 20 and 33.
//
// MXFP4 has a second candidate for one block in five, whose amax saturates under the first: two
// sums in f32, about 60 operations for such a block.
#pragma once

#include <bit>
#include <cstdint>

#include "octavo/backend/cpu/isa/avx2/fp4_squares_kernel.h"
#include "octavo/backend/cpu/isa/avx2/quantize_row.h"
#include "octavo/backend/cpu/isa/portable/fp4_search_bounds.h"

namespace octavo::cpu {
namespace {

// kCount values of a tile as f32, in order.
template <typename L, DType kSource, int kCount>
[[gnu::always_inline]] inline void load_tile(const std::byte* from, float* to) {
  for (int i = 0; i < kCount; i += L::kLanes)
    L::store_words(L::template load<kSource>(from + i * element_bytes(kSource)), to + i);
}

// Of each place: what u of the lowest code is multiplied by, in both words of a lane, and the
// square of its scale over that of the amax; by the mantissa of the amax's code, twice.
struct Fp4Places {
  alignas(64) std::uint32_t quotients[Fp4Search::kCodes][16]{};
  alignas(64) float squares[Fp4Search::kCodes][16]{};

  constexpr Fp4Places() {
    for (int i = 0; i < Fp4Search::kCodes; ++i)
      for (int at = 0; at < 16; ++at) {
        const int mantissa = at % 8;
        const double ratio = Fp4Search::ratio(mantissa, i);
        squares[i][at] = static_cast<float>(ratio * ratio);
        if (i == 0) continue;  // 1, which 15 fraction bits do not hold
        const auto quotient = static_cast<std::uint32_t>(Fp4Search::quotient(mantissa, i));
        quotients[i][at] = quotient << 16 | quotient;
      }
  }
};
constexpr Fp4Places kFp4Places;
constexpr std::uint32_t kE4m3MaxCode = e4m3fn.max_field();

// W: what L does in words of 16 bits.
template <typename L, typename W>
class Fp4ScaleSearch {
  using Bits = typename L::Bits;
  static constexpr int kCodes = Fp4Search::kCodes;

 public:
  // Null: no search.
  explicit Fp4ScaleSearch(const Fp4Tiles& job) : of_code_(job.searched) {
    ordinary_ = job.tensor_scale >= Fp4Search::kLeastTensorScale;
    if (of_code_ == nullptr) return;
    for (int code = 0; code < 128; ++code) factors_[code] = of_code_[code].factor;
  }
  [[nodiscard]] bool exists() const { return of_code_ != nullptr; }

  // The codes with the least errors, of tiles of sixteen whose amaxes have the codes `own`; what it
  // finds for tiles that are zero or poisoned is no code. Sets their factors.
  template <DType kSource>
  [[gnu::always_inline]] Bits operator()(const std::byte* from, Bits amax, Bits own,
                                         Bits& factor) const {
    own = L::min(own, L::splat(kE4m3MaxCode));  // of a poisoned tile it may be any number
    const Bits low = L::max_signed(L::sub(own, L::splat(kFitCodesBelow)), L::splat(0));
    alignas(64) float unit[L::kLanes];
    const auto splat = [](float x) { return L::splat(std::bit_cast<std::uint32_t>(x)); };
    L::store_words(L::fmul(L::look_up(factors_, low), splat(Fp4Search::kUnit)), unit);
    Bits pairs[8];
    W::template fixed_point<kSource>(from, unit, pairs);
    const typename W::Grid grid;
    const Bits mantissa = L::band(own, L::splat(7));
    const auto sum_of = [&](auto&& value) __attribute__((always_inline)) {
      Bits sum = L::splat(0);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const Bits u = value(pairs[i]);
        sum = L::add(sum, W::squares(W::minus(u, grid(u))));
      }
      return sum;
    };
    Bits least[kCodes], bound = splat(HUGE_VALF);
    const auto bounds = [&](int i, Bits sum) __attribute__((always_inline)) {
      constexpr auto kLess = static_cast<float>(1.0 - Fp4Search::kSlope),
                     kMore = static_cast<float>(1.0 + Fp4Search::kSlope),
                     kOffset = static_cast<float>(Fp4Search::kOffset);
      const Bits wide = L::to_float(sum), square = L::small_table(kFp4Places.squares[i], mantissa);
      least[i] = L::fmul(L::fmla(wide, splat(kLess), splat(-kOffset)), square);
      bound = L::fmin(bound, L::fmul(L::fmla(wide, splat(kMore), splat(kOffset)), square));
    };
    bounds(0, sum_of([](Bits u) __attribute__((always_inline)) { return u; }));
    for (int i = 1; i < kCodes; ++i) {
      const Bits quotient = L::small_table(kFp4Places.quotients[i], mantissa);
      bounds(i,
             sum_of([&](Bits u) __attribute__((always_inline)) { return W::times(u, quotient); }));
    }
    // How many codes may have the least error, and the last of them.
    Bits count = L::splat(0), place = L::splat(0);
#pragma GCC unroll 9
    for (int i = 0; i < kCodes; ++i) {
      const auto unlikely = L::fexceeds(L::as_floats(least[i]), L::as_floats(bound));
      count = L::select(unlikely, count, L::add(count, L::splat(1)));
      place = L::select(unlikely, place, L::splat(static_cast<std::uint32_t>(i)));
    }
    Bits code = L::sub(L::add(own, place), L::splat(kFitCodesBelow));
    const auto beyond = L::either(L::either(L::above(L::splat(Fp4Search::kLeastCode), own),
                                            L::above(own, L::splat(Fp4Search::kMaxCode))),
                                  L::above(count, L::splat(1)));
    const std::uint32_t open = ordinary_ ? L::mask_bits(beyond) : ~0u;
    const std::uint32_t live = L::mask_bits(L::above(amax, L::splat(0))) &
                               ~L::mask_bits(L::above(amax, L::splat(kF32Inf - 1)));
    if ((open & live) != 0) code = search_exactly<kSource>(from, own, code, open & live);
    // Those of tiles that are zero or poisoned are any numbers: one with a finite factor for them.
    code = L::min(L::max_signed(code, L::splat(1)), L::splat(kE4m3MaxCode));
    factor = L::look_up(factors_, code);
    return code;
  }

 private:
  // By sums in f32, tile by tile.
  template <DType kSource>
  [[gnu::noinline]] Bits search_exactly(const std::byte* from, Bits own, Bits code,
                                        std::uint32_t tiles) const {
    alignas(64) std::uint32_t owns[L::kLanes], codes[L::kLanes];
    L::store_words(own, owns);
    L::store_words(code, codes);
    for (std::uint32_t left = tiles & ((1ull << L::kLanes) - 1); left != 0; left &= left - 1) {
      const int t = std::countr_zero(left);
      alignas(64) float x[16];
      load_tile<L, kSource, 16>(from + t * 16 * element_bytes(kSource), x);
      codes[t] = fp4_least_error_by(
          [&](const float* factors, int count, float* sums) {
            fp4_squares_together<L>(x, nullptr, 16, factors, count, sums);
          },
          of_code_, owns[t]);
    }
    return L::load_words(codes);
  }

  const TileScale* of_code_;
  bool ordinary_ = false;
  alignas(64) float factors_[128];
};

// MXFP4: which of the blocks whose amax saturates take the next power of two. `tried` has those
// blocks, `factor` the factors of all under the first. Returns a mask of lanes.
template <typename L, DType kSource>
[[gnu::noinline]] std::uint32_t fp4_next_powers(const std::byte* from, std::uint32_t tried,
                                                typename L::Bits factor) {
  alignas(64) float factors[L::kLanes];
  L::store_words(factor, factors);
  std::uint32_t next = 0;
  for (std::uint32_t left = tried; left != 0; left &= left - 1) {
    const int t = std::countr_zero(left);
    alignas(64) float x[32];
    load_tile<L, kSource, 32>(from + t * 32 * element_bytes(kSource), x);
    const float of_both[4] = {factors[t], factors[t] * 0.5F};
    float sums[4];
    fp4_squares_together<L, 2>(x, nullptr, 32, of_both, 2, sums);
    // Squares of both scales are 1 and 4 of a unit.
    const double first = static_cast<double>(sums[0]), second = 4.0 * static_cast<double>(sums[1]);
    next |= static_cast<std::uint32_t>(second < first) << t;
  }
  return next;
}

}  // namespace
}  // namespace octavo::cpu
