#include "octavo/backend/cpu/quantize/fit_tile.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "octavo/backend/cpu/quantize/amax_span.h"
#include "octavo/scale/fit.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

// Calls visit(piece, n, index) along the tile, row by row.
template <typename Real, typename Visit>
void for_each_piece(const TileValues<Real>& values, const Area& region, Visit&& visit) {
  alignas(64) Real stage[kStageRoom];
  for (std::int64_t row = region.row; row < region.row + region.rows; ++row) {
    for (std::int64_t done = 0; done < region.cols; done += kStage) {
      const std::int64_t n = std::min(kStage, region.cols - done), col = region.col + done;
      visit(values.piece(row, col, n, stage), n,
            static_cast<std::uint64_t>(row * values.cols() + col));
    }
  }
}

// The magnitude of a given rank, by radix selection from the top bits: each pass over the tile
// counts the values of the next eleven bits, among magnitudes that begin with the bits found so
// far.
template <typename Real>
std::uint32_t percentile_bits(const QuantizeJob& job, const TileValues<Real>& values,
                              const Area& region) {
  constexpr int kDigits = 11;
  const std::uint32_t limit = counted_up_to(amax_of(job.scale));
  std::int64_t rank = percentile_rank(region.rows * region.cols, job.percentile);
  std::uint32_t prefix = 0;
  for (int shift = 22; shift >= 0; shift -= kDigits) {
    std::array<std::int64_t, 1 << kDigits> met{};
    for_each_piece(values, region, [&](const Real* x, std::int64_t n, std::uint64_t) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t bits = counted_bits(magnitude_bits(x[i]), limit);
        if (shift == 22 || bits >> (shift + kDigits) == prefix >> (shift + kDigits))
          ++met[bits >> shift & ((1u << kDigits) - 1)];
      }
    });
    std::uint32_t digit = 0;
    while (rank >= met[digit]) rank -= met[digit++];
    prefix |= digit << shift;
  }
  return prefix;
}

template <typename Real>
double squared_error(const Isa& isa, const QuantizeJob& job, const TileValues<Real>& values,
                     const Area& region, const Format& format, const Encoder& encoder,
                     const TileScale& scale) {
  const bool division = divides(job.scale);
  const PeerAdjust peer_adjust = peer_adjust_of(job.scale, format);
  const Decoder decoder{.format = format, .target = DType::f64};
  double error = 0;
  for_each_piece(values, region, [&](const Real* x, std::int64_t n, std::uint64_t index) {
    alignas(64) Real scaled[kStage];
    alignas(64) std::byte codes[kStage * 2];
    alignas(64) double back[kStage];
    const auto factor = static_cast<Real>(scale.factor);
    for (std::int64_t i = 0; i < n; ++i)
      scaled[i] = peer_adjusted(peer_adjust, division ? x[i] / factor : x[i] * factor);
    isa.encode(encoder)(encoder, scaled, codes, n, job.encode.first_index + index);
    isa.decode(decoder)(decoder, codes, back, n);
    for (std::int64_t i = 0; i < n; ++i) {
      if (!std::isfinite(x[i])) continue;
      const double difference =
          static_cast<double>(x[i]) - static_cast<double>(scale.scale) * back[i];
      error += difference * difference;
    }
  });
  return error;
}

}  // namespace

template <typename Real>
std::uint32_t fit_tile(const Isa& isa, const QuantizeJob& job, const TileValues<Real>& values,
                       const Area& region, const Matrix& codes, const Encoder& encoder,
                       std::uint32_t amax, TensorLevel tensor) {
  const auto largest = std::bit_cast<float>(amax);
  if (!is_finite(largest) || amax == 0) return amax;
  if (job.policy == AmaxPolicy::percentile) {
    const std::uint32_t found = percentile_bits(job, values, region);
    return found != 0 ? found : amax;
  }
  float best = largest;
  double least = HUGE_VAL;
  for (int i = 0; i < fit_candidates(job.scale.rule); ++i) {
    const float candidate = fit_candidate(job.scale.rule, largest, i);
    const TileScale scale =
        tile_scale(job.scale, codes.format, candidate, tensor.scale, tensor.amax);
    const double error = squared_error(isa, job, values, region, codes.format, encoder, scale);
    if (error < least) {
      least = error;
      best = candidate;
    }
  }
  return std::bit_cast<std::uint32_t>(best);
}

template std::uint32_t fit_tile<float>(const Isa&, const QuantizeJob&, const TileValues<float>&,
                                       const Area&, const Matrix&, const Encoder&, std::uint32_t,
                                       TensorLevel);
template std::uint32_t fit_tile<double>(const Isa&, const QuantizeJob&, const TileValues<double>&,
                                        const Area&, const Matrix&, const Encoder&, std::uint32_t,
                                        TensorLevel);

}  // namespace octavo::cpu
