// The searches of policies mse and 4over6 for scales of tiles in E2M1, as many tiles at a time as
// there are lanes, a tile to a lane.
//
// NVFP4 by integers (portable/fp4_search_bounds.h): two values of a tile are the words of its lane,
// so that a multiplication that adds neighbours sums up a tile. Operations for sixteen values:
//                                                     AVX-512          AVX2
//   fixed point and the transpose                     5                9
//   nine codes: product, index, value, difference,
//     squares, sum                                    9 x 3 = 27       9 x 11 = 99
//   bounds and choice, 12 for a code and all lanes    7                14
//   sums in f32 of one tile in 27                     6                9
// in all 45 on two ports, and 131 on three. Beside them `max` takes 20 and 33. Policy 4over6 has
// two of the nine codes: 13 and 35 with the quotients of its second code, and hardly a tile in f32.
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
    const Bits mantissa = L::band(own, L::splat(7));
    Fixed fixed;
    take<kSource>(from, own, fixed);
    Bits least[kCodes], bound = splat(HUGE_VALF);
    const auto bounds = [&](int i, Bits sum) __attribute__((always_inline)) {
      const Bits square = L::small_table(kFp4Places.squares[i], mantissa);
      least[i] = below(sum, square);
      bound = L::fmin(bound, above(sum, square));
    };
    const auto same = [](Bits u) __attribute__((always_inline)) { return u; };
    bounds(0, sum_of(fixed, same));
    for (int i = 1; i < kCodes; ++i)
      bounds(i, sum_of_quotient(fixed, L::small_table(kFp4Places.quotients[i], mantissa)));
    // How many codes may have the least error, and the last of them.
    Bits count = L::splat(0), place = L::splat(0);
#pragma GCC unroll 9
    for (int i = 0; i < kCodes; ++i) {
      const auto unlikely = L::fexceeds(L::as_floats(least[i]), L::as_floats(bound));
      count = L::select(unlikely, count, L::add(count, L::splat(1)));
      place = L::select(unlikely, place, L::splat(static_cast<std::uint32_t>(i)));
    }
    Bits code = L::sub(L::add(own, place), L::splat(kFitCodesBelow));
    const std::uint32_t tiles = live(amax) & open(own, L::mask_bits(L::above(count, L::splat(1))));
    if (tiles != 0) code = search_exactly<kSource>(from, own, code, tiles);
    return settled(code, factor);
  }

  // Policy 4over6: the better of `own` and of the codes that bring amaxes to 4.
  template <DType kSource>
  [[gnu::always_inline]] Bits of_two(const std::byte* from, Bits amax, Bits own, Bits four,
                                     Bits& factor) const {
    own = L::min(own, L::splat(kE4m3MaxCode));
    four = L::min(four, L::splat(kE4m3MaxCode));
    const Bits mantissa = L::band(own, L::splat(7));
    Fixed fixed;
    take<kSource>(from, own, fixed);
    // Of normal codes the second is four to six above the first: places 6, 7 and 8.
    constexpr int kOwn = kFitCodesBelow, kLeast = 4, kMost = 6;
    static_assert(kFitCodesAbove == kMost);
    const Bits step = L::sub(four, own);
    const auto at_step = [&](const auto& tables) __attribute__((always_inline)) {
      const auto table = [&](int i) { return L::small_table(tables[kOwn + i], mantissa); };
      const Bits more =
          L::select(L::equal(step, L::splat(kLeast + 1)), table(kLeast + 1), table(kMost));
      return L::select(L::equal(step, L::splat(kLeast)), table(kLeast), more);
    };
    const Bits own_sum =
        sum_of_quotient(fixed, L::small_table(kFp4Places.quotients[kOwn], mantissa));
    const Bits four_sum = sum_of_quotient(fixed, at_step(kFp4Places.quotients));
    const Bits one = splat(1.0F), square = at_step(kFp4Places.squares);
    const auto four_is_less =
        L::fexceeds(L::as_floats(below(own_sum, one)), L::as_floats(above(four_sum, square)));
    const auto own_is_less =
        L::fexceeds(L::as_floats(below(four_sum, square)), L::as_floats(above(own_sum, one)));
    Bits code = L::select(four_is_less, four, own);
    const auto is_far =
        L::either(L::above(L::splat(kLeast), step), L::above(step, L::splat(kMost)));
    const std::uint32_t unclear =
        L::mask_bits(is_far) | ~L::mask_bits(L::either(four_is_less, own_is_less));
    const std::uint32_t tiles = live(amax) & open(own, unclear);
    if (tiles != 0) code = choose_exactly<kSource>(from, own, four, code, tiles);
    return settled(code, factor);
  }

 private:
  struct Fixed {
    Bits pairs[8];
    typename W::Grid grid;
  };
  static Bits splat(float x) { return L::splat(std::bit_cast<std::uint32_t>(x)); }

  // Values of tiles in units of the lowest of the nine codes.
  template <DType kSource>
  [[gnu::always_inline]] void take(const std::byte* from, Bits own, Fixed& to) const {
    const Bits low = L::max_signed(L::sub(own, L::splat(kFitCodesBelow)), L::splat(0));
    alignas(64) float unit[L::kLanes];
    L::store_words(L::fmul(L::look_up(factors_, low), splat(Fp4Search::kUnit)), unit);
    W::template fixed_point<kSource>(from, unit, to.pairs);
  }
  template <typename Value>
  [[gnu::always_inline]] static Bits sum_of(const Fixed& of, const Value& value) {
    Bits sum = L::splat(0);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const Bits u = value(of.pairs[i]);
      sum = L::add(sum, W::squares(W::minus(u, of.grid(u))));
    }
    return sum;
  }
  [[gnu::always_inline]] static Bits sum_of_quotient(const Fixed& of, Bits quotient) {
    const auto times = [&](Bits u) __attribute__((always_inline)) { return W::times(u, quotient); };
    return sum_of(of, times);
  }
  // What an error is at least and at most, by its sum in integers and the square of its scale.
  [[gnu::always_inline]] static Bits below(Bits sum, Bits square) {
    constexpr auto kLess = static_cast<float>(1.0 - Fp4Search::kSlope),
                   kOffset = static_cast<float>(Fp4Search::kOffset);
    return L::fmul(L::fmla(L::to_float(sum), splat(kLess), splat(-kOffset)), square);
  }
  [[gnu::always_inline]] static Bits above(Bits sum, Bits square) {
    constexpr auto kMore = static_cast<float>(1.0 + Fp4Search::kSlope),
                   kOffset = static_cast<float>(Fp4Search::kOffset);
    return L::fmul(L::fmla(L::to_float(sum), splat(kMore), splat(kOffset)), square);
  }
  // Tiles that are neither zero nor poisoned.
  static std::uint32_t live(Bits amax) {
    return L::mask_bits(L::above(amax, L::splat(0))) &
           ~L::mask_bits(L::above(amax, L::splat(kF32Inf - 1)));
  }
  // Tiles that integers do not decide: those that they leave unclear, and those of rare codes.
  [[nodiscard]] std::uint32_t open(Bits own, std::uint32_t unclear) const {
    const auto beyond = L::either(L::above(L::splat(Fp4Search::kLeastCode), own),
                                  L::above(own, L::splat(Fp4Search::kMaxCode)));
    return ordinary_ ? unclear | L::mask_bits(beyond) : ~0u;
  }
  // Codes of tiles that are zero or poisoned are any numbers: some with a finite factor for them.
  [[gnu::always_inline]] Bits settled(Bits code, Bits& factor) const {
    code = L::min(L::max_signed(code, L::splat(1)), L::splat(kE4m3MaxCode));
    factor = L::look_up(factors_, code);
    return code;
  }

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

  template <DType kSource>
  [[gnu::noinline]] Bits choose_exactly(const std::byte* from, Bits own, Bits four, Bits code,
                                        std::uint32_t tiles) const {
    alignas(64) std::uint32_t owns[L::kLanes], fours[L::kLanes], codes[L::kLanes];
    L::store_words(own, owns);
    L::store_words(four, fours);
    L::store_words(code, codes);
    for (std::uint32_t left = tiles & ((1ull << L::kLanes) - 1); left != 0; left &= left - 1) {
      const int t = std::countr_zero(left);
      alignas(64) float x[16];
      load_tile<L, kSource, 16>(from + t * 16 * element_bytes(kSource), x);
      const TileScale &first = of_code_[owns[t]], &second = of_code_[fours[t]];
      const float factors[4] = {first.factor, second.factor};
      float sums[4];
      fp4_squares_together<L, 2>(x, nullptr, 16, factors, 2, sums);
      const auto error = [&](int i, const TileScale& by) {
        return fit_error(AmaxPolicy::four_over_six, static_cast<double>(sums[i]), by.scale);
      };
      const double of_own = error(0, first);
      // The first of equals, also where its error is infinite.
      codes[t] = error(1, second) < (of_own < HUGE_VAL ? of_own : HUGE_VAL) ? fours[t] : owns[t];
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
