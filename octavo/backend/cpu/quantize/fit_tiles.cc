// The general way: for each candidate the codes of a whole row of tiles are made and decoded again.
// E2M1 with usual rounding takes no codes: the instruction set has a kernel for the errors of a
// tile, for all candidates at once.
#include "octavo/backend/cpu/quantize/fit_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "octavo/backend/cpu/quantize/amax_span.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

// FitRun of u - back. Null weights: all are one.
template <typename Real>
double run_squares(const Real* u, const Real* back, const float* weights, std::int64_t n) {
  FitRun<Real> run;
  std::int64_t i = 0;
  for (; i + kFitLanes <= n; i += kFitLanes) {
    for (int k = 0; k < kFitLanes; ++k) {
      const Real error = u[i + k] - back[i + k], square = error * error;
      run.lanes[k] += weights != nullptr ? fit_weighted(square, weights[i + k]) : square;
    }
  }
  for (; i < n; ++i) run.add(i, u[i] - back[i], weights != nullptr ? weights[i] : 1.0F);
  return run.sum();
}

void replace(ScaleBatch& scales, std::int64_t t, const TileScale& by) {
  scales.bits[t] = by.bits;
  scales.scale[t] = by.scale;
  scales.factor[t] = by.factor;
}

TileScale at(const ScaleBatch& scales, std::int64_t t) {
  return {scales.bits[t], scales.scale[t], scales.factor[t]};
}

constexpr std::uint32_t kMaxCode = e4m3fn.max_field();

}  // namespace

template <typename Real>
TileFit<Real>::TileFit(const Isa& isa, const QuantizeJob& job, const TileValues<Real>& values,
                       const Encoder& encoder, TensorLevel tensor)
    : isa_(isa),
      job_(job),
      values_(values),
      encoder_(encoder),
      decoder_{.format = encoder.format, .target = sizeof(Real) == 4 ? DType::f32 : DType::f64},
      encode_(isa.encode(encoder_)),
      decode_(isa.decode(decoder_)),
      tensor_(tensor),
      division_(divides(job.scale)),
      peer_adjust_(peer_adjust_of(job.scale, encoder.format)),
      all_count_(counted_up_to(amax_of(job.scale)) == kAllCount),
      candidates_(fit_candidates(job.policy, job.scale)),
      top_exponent_(binade_of(static_cast<float>(max_value(encoder.format))).exponent),
      next_power_from_(fit_next_power_from(encoder.format)) {
  if (job.scale.format == ScaleFormat::e4m3_f32)
    of_code_ = two_level_scales(job.scale, tensor.scale);
}

// As fit_candidate, with the code of the amax and the exponent of the largest value known.
template <typename Real>
[[gnu::always_inline]] inline TileScale TileFit<Real>::candidate(float amax, std::uint32_t own_code,
                                                                 int i) const {
  if (job_.policy == AmaxPolicy::modelopt_sweep || job_.policy == AmaxPolicy::four_over_six)
    return fit_candidate(job_.policy, job_.scale, encoder_.format, amax, tensor_.scale,
                         tensor_.amax, i);
  if (is_power_of_two_rule(job_.scale.rule) && !is_peer(job_.scale.arith)) {
    const Binade at = binade_of(amax);
    const int up = i > 0 && (job_.scale.margin != 0 || at.mantissa >= next_power_from_) ? 1 : 0;
    return scale_of_exponent(job_.scale.format,
                             at.exponent + up - top_exponent_ + job_.scale.margin);
  }
  if (job_.scale.format != ScaleFormat::e4m3_f32) {
    const FitAmax other = fit_amax(job_.scale, encoder_.format, amax, i);
    return tile_scale(other.spec, encoder_.format, other.amax);
  }
  if (own_code < 1 || own_code > kMaxCode) return of_code_[own_code];
  const int code = static_cast<int>(own_code) + fit_step(i, -kFitCodesBelow, 0);
  return of_code_[static_cast<std::size_t>(std::clamp(code, 1, static_cast<int>(kMaxCode)))];
}

template <typename Real>
void TileFit<Real>::add_squares(const Area& area, std::int64_t tile_cols, const float* factors,
                                double* squares) const {
  alignas(64) Real stage[kStageRoom], scaled[kStage], back[kStage];
  alignas(64) std::byte codes[kStage * 2];
  // Whole tiles, or parts of one that begin with a run.
  static_assert(kStage % kFitRun == 0);
  const std::int64_t step = tile_cols <= kStage ? kStage / tile_cols * tile_cols : kStage;
  for (std::int64_t row = area.row; row < area.row + area.rows; ++row) {
    for (std::int64_t done = 0; done < area.cols; done += step) {
      const std::int64_t n = std::min(step, area.cols - done), first = done / tile_cols;
      const Real* x = values_.piece(row, area.col + done, n, stage);
      for (std::int64_t i = 0, t = first; i < n; ++t) {
        const auto factor = static_cast<Real>(factors[t]);
        const std::int64_t end = std::min(n, i + tile_cols);
        if (division_) {
          for (; i < end; ++i) scaled[i] = x[i] / factor;
        } else {
          for (; i < end; ++i) scaled[i] = x[i] * factor;
        }
      }
      if (peer_adjust_ != PeerAdjust::none) {
        for (std::int64_t i = 0; i < n; ++i) scaled[i] = peer_adjusted(peer_adjust_, scaled[i]);
      }
      const auto index = static_cast<std::uint64_t>(row * values_.cols() + area.col + done);
      encode_(encoder_, scaled, codes, n, job_.encode.first_index + index);
      decode_(decoder_, codes, back, n);
      if (job_.policy == AmaxPolicy::modelopt_sweep) {  // fit_difference: of values, not of u
        std::copy_n(x, n, scaled);
        for (std::int64_t i = 0, t = first; i < n; ++t)
          for (const std::int64_t end = std::min(n, i + tile_cols); i < end; ++i)
            back[i] *= static_cast<Real>(factors[t]);
      }
      if (!all_count_) {
        for (std::int64_t i = 0; i < n; ++i)
          if (!std::isfinite(x[i])) scaled[i] = back[i] = 0;
      }
      const float* const weights =
          job_.column_weights != nullptr ? job_.column_weights + area.col + done : nullptr;
      for (std::int64_t i = 0, t = first; i < n; ++t) {
        const std::int64_t end = std::min(n, i + tile_cols);
        for (; i < end; i += kFitRun)
          squares[t] +=
              run_squares(scaled + i, back + i, weights != nullptr ? weights + i : nullptr,
                          std::min<std::int64_t>(kFitRun, end - i));
        i = end;
      }
    }
  }
}

template <typename Real>
void TileFit<Real>::add_squares(const Area& area, float amax, int threads, double* squares) const {
  const TileScale own = tile_scale(job_.scale, encoder_.format, amax);
  parallel_units(candidates_, threads, [&](std::int64_t i) {
    const TileScale scale = candidate(amax, own.bits, static_cast<int>(i));
    add_squares(area, area.cols, &scale.factor, squares + i);
  });
}

template <typename Real>
void TileFit<Real>::fit(const Area& area, std::int64_t tile_cols, const std::uint32_t* amax,
                        ScaleBatch& scales, int threads) const {
  if (is_usual_fp4(area, tile_cols)) return fit_fp4(area, tile_cols, amax, scales);
  if (threads > 1 && area.cols <= tile_cols) return fit_one(area, amax[0], scales, threads);
  fit_any(area, tile_cols, amax, scales);
}

template <typename Real>
void TileFit<Real>::fit_any(const Area& area, std::int64_t tile_cols, const std::uint32_t* amax,
                            ScaleBatch& scales) const {
  const std::int64_t tiles = (area.cols + tile_cols - 1) / tile_cols;
  double least[kMaxTiles], squares[kMaxTiles];
  float factors[kMaxTiles] = {};
  std::uint32_t own[kMaxTiles];
  TileScale tried[kMaxTiles];
  std::fill_n(least, tiles, HUGE_VAL);
  std::copy_n(scales.bits, tiles, own);
  for (int i = 0; i < candidates_; ++i) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      const auto largest = std::bit_cast<float>(amax[t]);
      if (is_searched(largest)) tried[t] = candidate(largest, own[t], i);
      factors[t] = tried[t].factor;
    }
    std::fill_n(squares, tiles, 0.0);
    add_squares(area, tile_cols, factors, squares);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const double error = fit_error(job_.policy, squares[t], tried[t].scale);
      if (!is_searched(std::bit_cast<float>(amax[t])) || !(error < least[t])) continue;
      least[t] = error;
      replace(scales, t, tried[t]);
    }
  }
  if (job_.policy != AmaxPolicy::modelopt_sweep) return;
  for (std::int64_t t = 0; t < tiles; ++t) {
    if (!is_searched(std::bit_cast<float>(amax[t]))) continue;
    const TileScale chosen = at(scales, t);
    replace(scales, t,
            least[t] < HUGE_VAL ? fit_settled(job_.policy, job_.scale, chosen, tensor_.scale)
                                : fit_fallback(job_.policy, job_.scale, chosen, tensor_.scale));
  }
}

template <typename Real>
void TileFit<Real>::fit_one(const Area& area, std::uint32_t amax, ScaleBatch& scales,
                            int threads) const {
  const auto largest = std::bit_cast<float>(amax);
  if (!is_searched(largest)) return;
  const std::uint32_t own = scales.bits[0];
  double squares[kMaxFitCandidates] = {}, least = HUGE_VAL;
  parallel_units(candidates_, threads, [&](std::int64_t i) {
    const TileScale scale = candidate(largest, own, static_cast<int>(i));
    add_squares(area, area.cols, &scale.factor, squares + i);
  });
  const TileScale made = at(scales, 0);
  replace(scales, 0, fit_fallback(job_.policy, job_.scale, made, tensor_.scale));
  for (int i = 0; i < candidates_; ++i) {
    const TileScale scale = candidate(largest, own, i);
    const double error = fit_error(job_.policy, squares[i], scale.scale);
    if (!(error < least)) continue;
    least = error;
    replace(scales, 0, fit_settled(job_.policy, job_.scale, scale, tensor_.scale));
  }
}

template <typename Real>
bool TileFit<Real>::is_usual_fp4(const Area& area, std::int64_t tile_cols) const {
  return sizeof(Real) == 4 && encoder_.format == e2m1fn && area.rows == 1 &&
         std::min(tile_cols, area.cols) <= kFitRun && job_.scale.arith == Arith::octavo &&
         all_count_ && job_.encode.rounding == Rounding::nearest_even &&
         job_.encode.overflow == Overflow::saturate;
}

// The scales that bring amaxes to 4.
template <typename Real>
void TileFit<Real>::fours_for(const std::uint32_t* amax, std::int64_t tiles,
                              ScaleBatch& fours) const {
  std::uint32_t larger[kMaxTiles];
  for (std::int64_t t = 0; t < tiles; ++t)
    larger[t] = std::bit_cast<std::uint32_t>(amax_for_four(std::bit_cast<float>(amax[t])));
  make_scales(isa_, job_.scale, encoder_.format, larger, tiles, tensor_, fours);
}

template <typename Real>
void TileFit<Real>::fit_fp4(const Area& area, std::int64_t tile_cols, const std::uint32_t* amax,
                            ScaleBatch& scales) const {
  if constexpr (sizeof(Real) == 4) {
    // Some tiles at a time, step by step: the chain of operations from an amax to a choice is long.
    constexpr int kTiles = 16, kRoom = (kFitSixteenths + 3) / 4 * 4;
    alignas(64) float stage[kStageRoom], padded[kFitRun], padded_weights[kFitRun];
    alignas(64) float factors[kTiles][kRoom] = {}, sums[kTiles][kRoom];
    TileScale tried[kTiles][kFitSixteenths];
    // Four over six: both candidates of all tiles at once, without a branch.
    const bool is_four_over_six = job_.policy == AmaxPolicy::four_over_six;
    ScaleBatch fours;
    if (is_four_over_six) fours_for(amax, (area.cols + tile_cols - 1) / tile_cols, fours);
    // Powers of two: often there is one candidate only.
    const auto is_one = [&](std::int64_t t) {
      return candidates_ == 2 && factors[t][0] == factors[t][1];
    };
    const std::int64_t step =
        std::max<std::int64_t>(1, std::min<std::int64_t>(kTiles, kStage / tile_cols)) * tile_cols;
    for (std::int64_t done = 0; done < area.cols; done += step) {
      const std::int64_t n = std::min(step, area.cols - done), first = done / tile_cols,
                         tiles = (n + tile_cols - 1) / tile_cols;
      const float* x = values_.piece(area.row, area.col + done, n, stage);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const auto largest = std::bit_cast<float>(amax[first + t]);
        if (!is_searched(largest)) continue;
        for (int k = 0; k < candidates_; ++k) {
          tried[t][k] = is_four_over_six ? at(k == 0 ? scales : fours, first + t)
                                         : candidate(largest, scales.bits[first + t], k);
          factors[t][k] = tried[t][k].factor;
        }
      }
      for (std::int64_t t = 0; t < tiles; ++t) {
        const float* of_tile = x + t * tile_cols;
        const float* weights = job_.column_weights != nullptr
                                   ? job_.column_weights + area.col + done + t * tile_cols
                                   : nullptr;
        const std::int64_t wide = std::min(tile_cols, n - t * tile_cols),
                           whole = (wide + kFitLanes - 1) / kFitLanes * kFitLanes;
        // Zeros have no error: what fills the last vector, and columns of weight zero, where an
        // infinite square would become NaN.
        const bool leaves_out =
            weights != nullptr && std::find(weights, weights + wide, 0.0F) != weights + wide;
        if (whole != wide || leaves_out) {
          std::copy_n(of_tile, wide, padded);
          std::fill(padded + wide, padded + whole, 0.0F);
          for (std::int64_t i = 0; leaves_out && i < wide; ++i)
            if (weights[i] == 0.0F) padded[i] = 0.0F;
          of_tile = padded;
          if (weights != nullptr) {
            std::copy_n(weights, wide, padded_weights);
            std::fill(padded_weights + wide, padded_weights + whole, 0.0F);
            weights = padded_weights;
          }
        }
        if (!is_one(t)) isa_.fp4_squares(of_tile, weights, whole, factors[t], candidates_, sums[t]);
      }
      for (std::int64_t t = 0; t < tiles; ++t) {
        if (!is_searched(std::bit_cast<float>(amax[first + t]))) continue;
        double least = HUGE_VAL;
        int best = is_one(t) ? 0 : -1;
        for (int k = 0; k < (is_one(t) ? 0 : candidates_); ++k) {
          const double error =
              fit_error(job_.policy, static_cast<double>(sums[t][k]), tried[t][k].scale);
          best = error < least ? k : best;
          least = error < least ? error : least;
        }
        if (best >= 0) replace(scales, first + t, tried[t][best]);
      }
    }
  }
}

template class TileFit<float>;
template class TileFit<double>;

void add_fit_squares(const Isa& isa, const Exec& exec, const QuantizeJob& job, float amax,
                     double* squares) {
  const auto add = [&]<typename Real>() {
    const TileValues<Real> values(isa, job, false);
    const TileFit<Real> fit(isa, job, values,
                            make_encoder(job.rowwise.codes.format, scaled_policy(job),
                                         sizeof(Real) == 4 ? DType::f32 : DType::f64),
                            {});
    const Area all{0, 0, values.rows(), values.cols()};
    fit.add_squares(all, amax, useful_threads(exec, all.rows * all.cols), squares);
  };
  const FpEnvGuard guard;
  job.source.works_in_f64() ? add.template operator()<double>() : add.template operator()<float>();
}

}  // namespace octavo::cpu
