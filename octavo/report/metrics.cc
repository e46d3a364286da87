// Partitions a tensor into pieces, measures them in parallel, and adds them in order.
#include "octavo/report/metrics.h"

#include <algorithm>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/fp_env.h"
#include "octavo/base/thread_pool.h"
#include "octavo/report/piece_internal.h"

namespace octavo {
namespace {

// Pieces per thread and batch.
constexpr int kPiecesAtOnce = 4;

// Collects pieces, measures a batch of them at a time, and adds them to the totals.
class Batches {
 public:
  Batches(const Measurement& job, ErrorMetrics& out, PieceSums& total, int threads)
      : job_(job), out_(out), total_(total), threads_(threads) {
    reset(total_, 0, 0);
    scratch_.resize(static_cast<std::size_t>(threads));
    sums_.resize(scratch_.size() * kPiecesAtOnce);
    pieces_.reserve(sums_.size());
  }

  void push(const Piece& piece) {
    PieceSums& sums = sums_[pieces_.size()];
    reset(sums, job_.rows ? piece.rows : 0,
          job_.tiles ? tiles_down(piece) * tiles_across(piece) : 0);
    pieces_.push_back(piece);
    if (pieces_.size() == sums_.size()) flush();
  }

  void flush() {
    const int count = static_cast<int>(pieces_.size());
    parallel_for(threads_, threads_, [&](int part) {
      for (int i = part * kPiecesAtOnce; i < std::min(count, (part + 1) * kPiecesAtOnce); ++i) {
        const auto at = static_cast<std::size_t>(i);
        measure_piece(job_, pieces_[at], scratch_[static_cast<std::size_t>(part)], sums_[at]);
      }
    });
    for (std::size_t i = 0; i < pieces_.size(); ++i) add(pieces_[i], sums_[i]);
    pieces_.clear();
  }

 private:
  [[nodiscard]] std::int64_t tiles_down(const Piece& piece) const {
    return (piece.row + piece.rows - 1) / job_.tile_rows - piece.row / job_.tile_rows + 1;
  }
  [[nodiscard]] std::int64_t tiles_across(const Piece& piece) const {
    return (piece.col + piece.cols - 1) / job_.tile_cols - piece.col / job_.tile_cols + 1;
  }

  // Assigning keeps the memory that is there.
  void reset(PieceSums& sums, std::int64_t rows, std::int64_t tiles) const {
    PieceSums empty;
    std::swap(empty.rows, sums.rows);
    std::swap(empty.tiles, sums.tiles);
    std::swap(empty.exponents, sums.exponents);
    std::swap(empty.codes, sums.codes);
    sums = std::move(empty);
    sums.rows.assign(static_cast<std::size_t>(rows), {});
    sums.tiles.assign(static_cast<std::size_t>(tiles), {});
    sums.exponents.assign(job_.histograms ? kExponents : 0, 0);
    sums.codes.assign(job_.histograms ? job_.decoded.size() : 0, 0);
  }

  void add(const Piece& piece, const PieceSums& sums) {
    total_.add(sums);
    const PlanDim &row = job_.plan.row, &col = job_.plan.col;
    // Codes and scales are dense, so their offsets say which row and which tile this is.
    for (std::size_t r = 0; r < sums.rows.size(); ++r) {
      const std::int64_t at = piece.row + static_cast<std::int64_t>(r);
      const std::int64_t offset = piece.code_offset + (at > 0 ? at * row.code_stride : 0);
      out_.rows[static_cast<std::size_t>(offset / job_.code_row_bytes)] += sums.rows[r];
    }
    const std::int64_t across = tiles_across(piece);
    for (std::size_t t = 0; t < sums.tiles.size(); ++t) {
      const std::int64_t down = static_cast<std::int64_t>(t) / across,
                         right = static_cast<std::int64_t>(t) % across;
      const std::int64_t offset = piece.scale_offset +
                                  (piece.row / job_.tile_rows + down) * row.scale_stride +
                                  (piece.col / job_.tile_cols + right) * col.scale_stride;
      out_.tiles[static_cast<std::size_t>(offset / job_.scale_bytes)] += sums.tiles[t];
    }
  }

  const Measurement& job_;
  ErrorMetrics& out_;
  PieceSums& total_;
  int threads_;
  std::vector<PieceScratch> scratch_;
  std::vector<Piece> pieces_;
  std::vector<PieceSums> sums_;
};

ScaleRange range_of(const Measurement& job) {
  ScaleRange range;
  range.count = element_count(job.copy->scales.shape());
  for (std::int64_t i = 0; i < range.count; ++i) {
    const double scale = job.scale(i);
    range.nan += std::isnan(scale);
    range.zero += scale == 0;
    if (!std::isfinite(scale) || scale <= 0) continue;
    range.least = range.least == 0 ? scale : std::min(range.least, scale);
    range.most = std::max(range.most, scale);
  }
  return range;
}

double cosine_of(const PieceSums& total) {
  if (total.sums.value2 == 0 && total.result2 == 0) return 1;
  if (total.sums.value2 == 0 || total.result2 == 0) return 0;
  return std::clamp(total.product / (std::sqrt(total.sums.value2) * std::sqrt(total.result2)), -1.0,
                    1.0);
}

ValueHistogram histogram_of(const PieceSums& total) {
  ValueHistogram out;
  out.zeros = total.zeros;
  const auto filled = [](std::int64_t count) { return count > 0; };
  const auto& all = total.exponents;
  const auto first = std::find_if(all.begin(), all.end(), filled);
  if (first == all.end()) return out;
  const auto end = std::find_if(all.rbegin(), all.rend(), filled).base();
  out.first_exponent = kLeastExponent + static_cast<int>(first - all.begin());
  out.counts.assign(first, end);
  return out;
}

// All pieces in their order; rows and tiles go to `out`.
PieceSums measure_all(const Measurement& job, int most_threads, ErrorMetrics& out) {
  const Shape& shape = job.values.shape;
  std::int64_t rows = 1;
  for (int i = 0; i < shape.rank() - 1; ++i) rows *= shape[i];
  out.rows.assign(static_cast<std::size_t>(job.rows ? rows : 0), {});
  out.tiles.assign(static_cast<std::size_t>(job.tiles ? out.scales.count : 0), {});

  const std::int64_t pieces = out.elements / kPieceElements + 1;
  const Exec exec = make_exec(out.elements, most_threads, nullptr, "error");
  const int threads = static_cast<int>(std::min<std::int64_t>(pieces, exec.threads));
  PieceSums total;
  Batches batches(job, out, total, threads);
  for_each_piece(job.plan, [&](const Piece& piece) { batches.push(piece); });
  batches.flush();
  return total;
}

}  // namespace

// 1 where squares are no trouble: 2^60 squares of
// 2^480 are finite, and the square of a 2^-53rd of 2^-450 is a normal number.
double unit_of(double amax) {
  if (amax == 0 || (amax >= 0x1p-450 && amax <= 0x1p480)) return 1;
  return std::ldexp(1.0, std::clamp(std::ilogb(amax), -1000, 1000));
}

void derive_ratios(ErrorMetrics& out, std::int64_t finite, std::int64_t nbytes) {
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  out.mse = out.sums.mse();
  out.relative_l2 = out.sums.relative_l2();
  out.sqnr = out.sums.sqnr();
  // 6.02 dB a bit, and 1.76 dB that a full-scale sine has over the noise of half a step.
  out.effective_bits = (out.sqnr - 1.76) / 6.02;
  if (finite > 0) {
    out.saturated_share = share(out.saturated, finite);
    out.flushed_share = share(out.flushed, finite);
  }
  if (out.elements > 0) out.bits_per_value = 8.0 * share(nbytes, out.elements);
}

ErrorMetrics measure_error(const View& values, const QuantizedTensor& q,
                           const MetricOptions& options) {
  const FpEnvGuard guard;  // sums and ratios must not depend on the caller's rounding
  Measurement job = make_measurement(values, q, options);
  ErrorMetrics out;
  out.elements = element_count(values.shape);
  out.scales = range_of(job);
  PieceSums total = measure_all(job, options.threads, out);
  job.unit = unit_of(total.amax);
  if (job.unit != 1) total = measure_all(job, options.threads, out);  // f64 only, and seldom

  out.sums = total.sums;
  out.cosine = cosine_of(total);
  out.max_abs = out.sums.max_abs;
  out.max_relative = total.max_relative;
  out.amax = std::max(total.amax, total.lost_amax);
  out.saturated = total.saturated;
  out.flushed = total.flushed;
  out.input = total.input;
  out.result = total.result;
  derive_ratios(out, total.finite, static_cast<std::int64_t>(job.copy->nbytes()));
  if (job.histograms) {
    out.values = histogram_of(total);
    out.codes = std::move(total.codes);
  }
  return out;
}

}  // namespace octavo
