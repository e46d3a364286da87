// Reference quantization, by definition: for each tile its amax, its scale, then its codes, one
// element after the other.
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "octavo/backend/reference/dequantized_internal.h"
#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/produced_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"
#include "octavo/round/stochastic.h"
#include "octavo/scale/delayed_step.h"
#include "octavo/scale/fit.h"
#include "octavo/scale/hadamard.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::reference {
namespace {

// The source of one copy: element (row, col) of it, or of its transpose.
struct Seen {
  const QuantizeJob& job;
  bool transposed;
  bool is_f64 = job.source.works_in_f64();
  std::optional<ProducedValues> produced = produced_of(job.source);

  static std::optional<ProducedValues> produced_of(const QuantizeSource& source) {
    if (source.producer == nullptr) return std::nullopt;
    return ProducedValues(source.values, *source.producer);
  }
  [[nodiscard]] double plain(std::int64_t row, std::int64_t col) const {
    if (transposed) std::swap(row, col);
    if (job.source.is_quantized())
      return static_cast<float>(dequantized(job.source.quantized, row, col));
    if (produced) return produced->at(row, col);
    return load_value(job.source.values, row, col);
  }
  [[nodiscard]] std::int64_t rows() const {
    return transposed ? job.source.cols() : job.source.rows();
  }
  [[nodiscard]] std::int64_t cols() const {
    return transposed ? job.source.rows() : job.source.cols();
  }
  [[nodiscard]] double at(std::int64_t row, std::int64_t col) const {
    const bool rotated = transposed ? job.hadamard_columnwise : job.hadamard_rowwise;
    const std::int64_t first = col / kHadamardSize * kHadamardSize;
    if (!rotated || first + kHadamardSize > cols()) return plain(row, col);
    float group[kHadamardSize];
    for (int i = 0; i < kHadamardSize; ++i) group[i] = static_cast<float>(plain(row, first + i));
    hadamard16(group, job.hadamard_signs, job.hadamard_to_bf16);
    return group[col - first];
  }
};

// The magnitude of a value that an amax counts; f64 is rounded up to f32.
float counted(double value, AmaxOf of) {
  double magnitude = std::fabs(value);
  if (magnitude != magnitude) return of == AmaxOf::all ? f32_nan() : 0.0F;
  if (std::isinf(magnitude)) return of == AmaxOf::only_finite ? 0.0F : HUGE_VALF;
  magnitude = std::min(magnitude, static_cast<double>(kMaxFloat));
  const auto nearest = static_cast<float>(magnitude);
  return static_cast<double>(nearest) < magnitude ? std::nextafterf(nearest, HUGE_VALF) : nearest;
}

// NaN wins over everything, as the integer order of magnitudes has it.
void raise(float& amax, float other) {
  if (!(other <= amax) && amax == amax) amax = other;
}

void store_scale(const Matrix& scales, std::int64_t row, std::int64_t col, std::uint32_t bits) {
  if (scales.dtype == DType::code) return store_code(scales, row, col, bits);
  std::byte* to = row_start(scales, row) + col * scales.col_stride;
  if (scales.dtype == DType::f32) return store(to, bits);
  store(to, static_cast<std::uint16_t>(bits));
}

struct Region {
  std::int64_t row, col, rows, cols;
};

class CopyMaker {
 public:
  CopyMaker(const QuantizeJob& job, bool transposed)
      : job_(job), seen_{job, transposed}, to_(transposed ? job.columnwise : job.rowwise) {}

  void run(Counts* counts) {
    const std::int64_t rows = to_.codes.rows, cols = to_.codes.cols;
    const Tile tile{tile_extent(to_.tile.rows, rows), tile_extent(to_.tile.cols, cols)};
    for (std::int64_t r = 0; r < rows; r += tile.rows) {
      for (std::int64_t c = 0; c < cols; c += tile.cols) {
        const Region region{r, c, std::min(tile.rows, rows - r), std::min(tile.cols, cols - c)};
        const TileScale scale = scale_of(region);
        store_scale(to_.scales, r / tile.rows, c / tile.cols, scale.bits);
        visit(region, [&](std::int64_t row, std::int64_t col) {
          const Encoded encoded = encode_at(row, col, scale);
          store_code(to_.codes, row, col, encoded.code);
          if (counts != nullptr) *counts += {encoded.saturated, encoded.flushed, encoded.nan};
        });
      }
    }
  }

  // Of the whole matrix, as a part of one tile.
  void add_squares(float amax, double* squares) const {
    const Region all{0, 0, to_.codes.rows, to_.codes.cols};
    for (int i = 0; i < fit_candidates(job_.policy, job_.scale); ++i)
      squares[i] = squared_errors(all, candidate(amax, i), squares[i]);
  }

 private:
  template <typename Visit>
  void visit(const Region& region, Visit&& visit_element) const {
    for (std::int64_t row = region.row; row < region.row + region.rows; ++row)
      for (std::int64_t col = region.col; col < region.col + region.cols; ++col)
        visit_element(row, col);
  }

  [[nodiscard]] float tensor_scale() const {
    return to_.tensor_scale != nullptr ? *to_.tensor_scale : 1.0F;
  }

  [[nodiscard]] float tensor_amax() const {
    return job_.tensor_amax != nullptr ? *job_.tensor_amax : 0.0F;
  }

  [[nodiscard]] TileScale made(float amax) const {
    return tile_scale(job_.scale, to_.codes.format, amax, tensor_scale(), tensor_amax());
  }

  [[nodiscard]] TileScale scale_of(const Region& region) const {
    if (job_.given_inv_scale != nullptr)
      return from_inv_scale(job_.scale.format, *job_.given_inv_scale);
    if (job_.given_amax != nullptr) return made(*job_.given_amax);
    float amax = 0;
    std::vector<float> magnitudes;
    visit(region, [&](std::int64_t row, std::int64_t col) {
      magnitudes.push_back(counted(seen_.at(row, col), amax_of(job_.scale)));
      raise(amax, magnitudes.back());
    });
    if (!is_searched(job_.policy, job_.scale, amax) || job_.policy == AmaxPolicy::max)
      return made(amax);
    if (job_.policy == AmaxPolicy::percentile) {
      std::sort(magnitudes.begin(), magnitudes.end());
      const auto rank =
          percentile_rank(static_cast<std::int64_t>(magnitudes.size()), job_.percentile);
      const float found = magnitudes[static_cast<std::size_t>(rank)];
      return made(found > 0.0F ? found : amax);  // mostly zeros, but not all
    }
    TileScale best = fit_fallback(job_.policy, job_.scale, made(amax), tensor_scale());
    double least = HUGE_VAL;
    for (int i = 0; i < fit_candidates(job_.policy, job_.scale); ++i) {
      const TileScale scale = candidate(amax, i);
      const double error = fit_error(job_.policy, squared_errors(region, scale), scale.scale);
      if (error < least) {
        least = error;
        best = fit_settled(job_.policy, job_.scale, scale, tensor_scale());
      }
    }
    return best;
  }

  [[nodiscard]] TileScale candidate(float amax, int i) const {
    return fit_candidate(job_.policy, job_.scale, to_.codes.format, amax, tensor_scale(),
                         tensor_amax(), i);
  }

  // In the type that values are processed in.
  template <typename Real>
  [[nodiscard]] Real error_at(std::int64_t row, std::int64_t col, const TileScale& scale) const {
    if (!std::isfinite(seen_.at(row, col))) return 0;
    const auto x = static_cast<Real>(seen_.at(row, col)),
               u = static_cast<Real>(scaled_at(row, col, scale)),
               value = static_cast<Real>(decode(to_.codes.format, encode_at(row, col, scale).code));
    return fit_difference(job_.policy, x, u, value, static_cast<Real>(scale.factor));
  }

  [[nodiscard]] float weight_of(std::int64_t col) const {
    return job_.column_weights != nullptr ? job_.column_weights[col] : 1.0F;
  }

  // Added to a sum, run by run.
  [[nodiscard]] double squared_errors(const Region& region, const TileScale& scale,
                                      double sum = 0) const {
    return seen_.is_f64 ? squares_of<double>(region, scale, sum)
                        : squares_of<float>(region, scale, sum);
  }

  template <typename Real>
  [[nodiscard]] double squares_of(const Region& region, const TileScale& scale, double sum) const {
    for (std::int64_t row = region.row; row < region.row + region.rows; ++row) {
      for (std::int64_t start = 0; start < region.cols; start += kFitRun) {
        FitRun<Real> run;
        for (std::int64_t i = start; i < std::min(start + kFitRun, region.cols); ++i)
          run.add(i - start, error_at<Real>(row, region.col + i, scale), weight_of(region.col + i));
        sum += run.sum();
      }
    }
    return sum;
  }

  [[nodiscard]] Encoded encode_at(std::int64_t row, std::int64_t col,
                                  const TileScale& scale) const {
    const Format& format = to_.codes.format;
    if (scale.scale != scale.scale)
      return {.code = format.has_nan() ? nan_input_code(format, job_.encode, false) : 0,
              .nan = true};
    std::uint32_t random = 0;
    if (job_.encode.rounding == Rounding::stochastic) {
      const std::uint64_t index =
          job_.encode.first_index + static_cast<std::uint64_t>(row * to_.codes.cols + col);
      random = stochastic_draw(job_.encode.seed, index, job_.encode.stochastic_bits);
    }
    return encode_value(format, scaled_at(row, col, scale), job_.encode, random);
  }

  // Divided or multiplied, in f32 or f64; what f32 gives is exact in f64.
  [[nodiscard]] double scaled_at(std::int64_t row, std::int64_t col, const TileScale& scale) const {
    const double value = seen_.at(row, col);
    const bool division = divides(job_.scale) && job_.given_inv_scale == nullptr;
    const PeerAdjust peer_adjust = job_.given_inv_scale == nullptr
                                       ? peer_adjust_of(job_.scale, to_.codes.format)
                                       : PeerAdjust::none;
    const auto scaled = [division, peer_adjust](auto x, auto factor) {
      return peer_adjusted(peer_adjust, division ? x / factor : x * factor);
    };
    if (seen_.is_f64) return scaled(value, static_cast<double>(scale.factor));
    return static_cast<double>(scaled(static_cast<float>(value), scale.factor));
  }

  const QuantizeJob& job_;
  Seen seen_;
  const QuantizedMatrix& to_;
};

}  // namespace

void tensor_scale(const Exec&, const ScaleSpec& spec, const Format& element, const float* amax,
                  float* scale) {
  const FpEnvGuard guard;
  *scale = tensor_scale_of(spec, element, *amax);
}

void delayed_update(const Exec&, const DelayedJob& job) {
  const FpEnvGuard guard;
  delayed_update_all(job);
}

namespace {

void amax_of_seen(const Seen& seen, AmaxOf of, float* amax) {
  for (std::int64_t row = 0; row < seen.rows(); ++row)
    for (std::int64_t col = 0; col < seen.cols(); ++col)
      raise(*amax, counted(seen.at(row, col), of));
}

}  // namespace

void amax_matrix(const Exec&, const QuantizeSource& source, AmaxOf of, float* amax) {
  const FpEnvGuard guard;
  const QuantizeJob job{.source = source};
  amax_of_seen({job, false}, of, amax);
}

void count_magnitudes(const Exec&, const QuantizeJob& job, const RankDigit& digit,
                      std::int64_t* counts) {
  const FpEnvGuard guard;
  const Seen seen{job, false};
  for (std::int64_t row = 0; row < seen.rows(); ++row) {
    for (std::int64_t col = 0; col < seen.cols(); ++col) {
      const auto bits =
          std::bit_cast<std::uint32_t>(counted(seen.at(row, col), amax_of(job.scale)));
      if (has_prefix(digit, bits)) ++counts[digit_of(digit, bits)];
    }
  }
}

void add_fit_squares(const Exec&, const QuantizeJob& job, float amax, double* squares) {
  const FpEnvGuard guard;
  CopyMaker(job, false).add_squares(amax, squares);
}

void quantize_matrix(const Exec& exec, const QuantizeJob& job) {
  const FpEnvGuard guard;
  const bool is_amax_alone = !job.rowwise.wanted() && !job.columnwise.wanted();
  if (job.amax != nullptr && is_amax_alone)
    return amax_of_seen({job, job.hadamard_columnwise}, amax_of(job.scale), job.amax);
  if (job.amax != nullptr) amax_matrix(exec, job.source, amax_of(job.scale), job.amax);
  if (job.rowwise.wanted()) CopyMaker(job, false).run(job.counts);
  if (job.columnwise.wanted())
    CopyMaker(job, true).run(job.rowwise.wanted() ? nullptr : job.counts);
}

void dequantize_matrix(const Exec&, const QuantizedMatrix& from, const Matrix& values) {
  const FpEnvGuard guard;
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t col = 0; col < values.cols; ++col) {
      const double value = dequantized(from, row, col);
      store_value(
          values, row, col,
          values.dtype == DType::f64 ? value : static_cast<double>(static_cast<float>(value)));
    }
  }
}

}  // namespace octavo::reference
