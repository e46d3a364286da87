// The search of policy wmse for the scales of NVFP4's tiles, as many tiles at a time as there are
// lanes, a tile to a lane. Weights leave integers no bound, so that all nine sums are in f32, in
// the order of scale/fit.h: the sixteen values of a tile are sixteen vectors, and adding them up is
// 15 additions for all lanes. 10 operations for a value and a code, and 15 for a tile and a code:
// 9 x 175 for 16 tiles of AVX-512, and 4 x 2 a tile for transposing values and weights; in all 110
// operations a tile, where sums tile by tile (fp4_squares_kernel.h) would be 180.
//
// Which sum times the square of its scale is least is asked in f32 with a bound, and in f64, as the
// contract has it, only where that leaves several open.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "octavo/backend/cpu/isa/avx2/fp4_search_kernel.h"

namespace octavo::cpu {
namespace {

template <typename L>
class Fp4WeightedSearch {
  using Bits = typename L::Bits;
  static constexpr int kCodes = Fp4Search::kCodes, kTile = static_cast<int>(kFp4Tile);

 public:
  // Of the n values of a row, which operator() is then asked for in their order.
  Fp4WeightedSearch(const Fp4Tiles& job, std::int64_t n)
      : of_code_(job.searched), weights_(job.weights), left_(n) {
    for (int code = 0; code < 128; ++code) {
      factors_[code] = of_code_[code].factor;
      scales_[code] = of_code_[code].scale;
    }
  }

  // As Fp4ScaleSearch: codes with the least errors, and their factors.
  template <DType kSource>
  [[gnu::noinline]] Bits operator()(const std::byte* from, Bits amax, Bits own, Bits& factor) {
    own = L::max_signed(L::min(own, L::splat(kE4m3MaxCode)), L::splat(1));
    alignas(64) Bits x[kTile], weights[kTile];
    take<kSource>(from, x, weights);
    alignas(64) float sums[kCodes][L::kLanes];
    Bits best = own, least = splat(HUGE_VALF);
    Bits errors[kCodes];
    const Bits own_scale = L::look_up(scales_, own);
    for (int i = 0; i < kCodes; ++i) {
      const Bits code = code_at(own, i);
      const Bits sum = sum_of(x, weights, L::look_up(factors_, code));
      L::store_words(sum, sums[i]);
      const Bits ratio = L::fdiv(L::look_up(scales_, code), own_scale);
      errors[i] = L::fmul(sum, L::fmul(ratio, ratio));
      least = L::fmin(errors[i], least);
    }
    // Each error is off by four roundings of f32 at most (the quotient's counts twice), 2^-22 of
    // itself: of two that are further apart than 2^-20 the lesser is known. Not where numbers are
    // so tiny or so large that products of theirs are no normal ones; quotients are at most 7.
    constexpr float kNear = 1.0F + 0x1p-20F;
    const Bits bound = L::fmul(least, splat(kNear));
    Bits count = L::splat(0);
    for (int i = 0; i < kCodes; ++i) {
      const auto is_far = L::fexceeds(L::as_floats(errors[i]), L::as_floats(bound));
      count = L::select(is_far, count, L::add(count, L::splat(1)));
      best = L::select(is_far, best, code_at(own, i));
    }
    const auto beyond = L::either(L::fexceeds(L::as_floats(splat(0x1p-100F)), L::as_floats(least)),
                                  L::fexceeds(L::as_floats(least), L::as_floats(splat(0x1p100F))));
    const auto unclear =
        L::either(beyond, L::either(L::above(count, L::splat(1)), L::equal(count, L::splat(0))));
    const std::uint32_t live = L::mask_bits(L::above(amax, L::splat(0))) &
                               ~L::mask_bits(L::above(amax, L::splat(kF32Inf - 1)));
    const std::uint32_t open = live & L::mask_bits(unclear);
    if (open != 0) best = by_sums(own, best, sums, open);
    factor = L::look_up(factors_, best);
    return best;
  }

 private:
  static Bits splat(float x) { return L::splat(std::bit_cast<std::uint32_t>(x)); }

  // The amax's own first, then from the lowest on, as they are compared.
  static Bits code_at(Bits own, int i) {
    const int step = fit_step(i, -kFitCodesBelow, 0);
    const Bits code = L::add(own, L::splat(static_cast<std::uint32_t>(step)));
    return L::min(L::max_signed(code, L::splat(1)), L::splat(kE4m3MaxCode));
  }

  // Values and weights of a batch, transposed. Values of weight zero are zeros, which have no
  // error: an infinite square would become NaN.
  template <DType kSource>
  void take(const std::byte* from, Bits (&x)[kTile], Bits (&weights)[kTile]) {
    constexpr std::int64_t kBatch = L::kLanes * kTile;
    alignas(64) float values[kBatch], staged[kBatch] = {};
    for (std::int64_t i = 0; i < kBatch; i += L::kLanes)
      L::store_words(L::template load<kSource>(from + i * element_bytes(kSource)), values + i);
    const float* of_batch = weights_;
    if (left_ < kBatch) {
      std::memcpy(staged, weights_, static_cast<std::size_t>(left_) * sizeof(float));
      of_batch = staged;
    }
    weights_ += kBatch;
    left_ -= kBatch;
    transpose(values, x);
    transpose(of_batch, weights);
    const Bits magnitude = L::splat(0x7FFFFFFFu);
    for (int i = 0; i < kTile; ++i) {
      const auto none = L::fequal(weights[i], L::splat(0));
      x[i] = L::select(none, L::splat(0), L::band(x[i], magnitude));
    }
  }
  static void transpose(const float* tiles, Bits (&to)[kTile]) {
    for (int first = 0; first < kTile; first += L::kLanes) {
      Bits rows[L::kLanes];
      for (int t = 0; t < L::kLanes; ++t) rows[t] = L::load_words(tiles + t * kTile + first);
      L::transpose(rows);
      for (int i = 0; i < L::kLanes; ++i) to[first + i] = rows[i];
    }
  }

  // FitRun of a tile in each lane.
  [[gnu::always_inline]] static Bits sum_of(const Bits (&x)[kTile], const Bits (&weights)[kTile],
                                            Bits factor) {
    const auto square = [&](int i) __attribute__((always_inline)) {
      return L::fmul(fp4_square<L>(x[i], factor), weights[i]);
    };
    Bits four[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      four[i] = L::fadd(L::fadd(square(i), square(i + 8)), L::fadd(square(i + 4), square(i + 12)));
    return L::fadd(L::fadd(four[0], four[1]), L::fadd(four[2], four[3]));
  }

  [[gnu::noinline]] Bits by_sums(Bits own, Bits best, const float (&sums)[kCodes][L::kLanes],
                                 std::uint32_t tiles) const {
    alignas(64) std::uint32_t owns[L::kLanes], codes[L::kLanes];
    L::store_words(own, owns);
    L::store_words(best, codes);
    for (std::uint32_t left = tiles; left != 0; left &= left - 1) {
      const int t = std::countr_zero(left);
      codes[t] = fp4_least_error_by(
          [&](const float*, int count, float* of_tile) {
            for (int i = 0; i < count; ++i) of_tile[i] = sums[i][t];
          },
          of_code_, owns[t]);
    }
    return L::load_words(codes);
  }

  const TileScale* of_code_;
  const float* weights_;
  std::int64_t left_;
  alignas(64) float factors_[128], scales_[128];
};

}  // namespace
}  // namespace octavo::cpu
