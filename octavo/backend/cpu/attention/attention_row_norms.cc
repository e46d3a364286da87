// Norms for certified bounds of attention (AttentionNormsJob): one pass over an operand, and over
// what is used instead of it. In f32, or in f64 where values are; a difference of two such numbers
// is rounded once. Four rows are added to the channels at a time, which are loaded and stored for
// each (norm_lanes.h).
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

#include "octavo/backend/attention_norms_job.h"
#include "octavo/backend/cpu/attention/attention_operand_values.h"
#include "octavo/backend/cpu/gemm/gemm_blocking.h"
#include "octavo/backend/cpu/norm_lanes.h"
#include "octavo/backend/cpu/work_split.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kMax = kNormCols, kLanes = kNormLanes, kSide = kNormSide;
static_assert(kMax == AttentionOperandValues::kMax);

template <typename T>
const NormSpansOf<T>& spans_of(const Isa& isa) {
  if constexpr (std::is_same_v<T, float>)
    if (isa.norms != nullptr) return *isa.norms;
  return kNormSpansOf<T>;
}

template <typename T>
class Measurer {
 public:
  Measurer(const Isa& isa, const AttentionNormsJob& job, std::int64_t batch, std::int64_t head)
      : job_(job),
        spans_(spans_of<T>(isa)),
        cols_(job.given.first.cols()),
        length_(job.lengths != nullptr ? job.lengths[batch] : job.given.first.rows()),
        given_(isa, job.given.at(batch, head)),
        is_same_(job.used == nullptr &&
                 (job.given.first.is_quantized() || job.values == DType::f64 ||
                  job.given.first.values.dtype == job.values)) {
    if (job.used != nullptr) used_.emplace(isa, job.used->at(batch, head));
  }

  // Rows [first, last) of the head; results are those of the head.
  void run(std::int64_t first, std::int64_t last, double* row_squares, double* row_error_squares,
           AttentionChannel* channels) const {
    const auto put = [&](double* to, std::int64_t row, bool is_first, const T* numbers,
                         std::int64_t n) {
      if (to != nullptr) to[row] = (is_first ? 0.0 : to[row]) + spans_.squares(numbers, n);
    };
    for (std::int64_t col = 0; col < cols_; col += kMax) {
      const std::int64_t n = std::min(kMax, cols_ - col), whole = round_up(n, kLanes);
      NormChannels<T> sums;
      if (channels != nullptr) begin(sums, col, n);
      NormRows<T> rows;
      for (std::int64_t row = first; row < last; row += kSide) {
        const std::int64_t count = std::min(kSide, last - row),
                           real = std::clamp<std::int64_t>(length_ - row, 0, count);
        for (std::int64_t r = 0; r < count; ++r) {
          if (r < real) load(row + r, col, n, rows, r);
          put(row_squares, row + r, col == 0, rows.given[r], r < real ? whole : 0);
          put(row_error_squares, row + r, col == 0, rows.error[r],
              r < real && !is_same_ ? whole : 0);
        }
        if (channels == nullptr) continue;
        spans_.add(rows, real, n, !is_same_, sums);
      }
      for (std::int64_t d = 0; channels != nullptr && d < n; ++d)
        channels[col + d] = {.center = static_cast<double>(sums.center[d]),
                             .least = static_cast<double>(sums.least[d]),
                             .most = static_cast<double>(sums.most[d]),
                             .sum = static_cast<double>(sums.sum[d]),
                             .squares = static_cast<double>(sums.squares[d]),
                             .fourth_powers = static_cast<double>(sums.fourth_powers[d]),
                             .error = static_cast<double>(sums.error[d]),
                             .error_squares = static_cast<double>(sums.error_squares[d])};
    }
  }

 private:
  void begin(NormChannels<T>& sums, std::int64_t col, std::int64_t n) const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    std::fill_n(sums.center, n, T{0});
    std::fill_n(sums.least, n, kInfinity);
    std::fill_n(sums.most, n, -kInfinity);
    for (T* zeros : {sums.sum, sums.squares, sums.fourth_powers, sums.error, sums.error_squares})
      std::fill_n(zeros, n, T{0});
    const std::int64_t count = std::min(length_, kCenterRows);
    alignas(64) T numbers[kMax];
    for (std::int64_t i = 0; i < count; ++i) {
      given_.piece(i * length_ / count, col, n, numbers);
      for (std::int64_t d = 0; d < n; ++d) sums.center[d] += numbers[d] / static_cast<T>(count);
    }
  }

  void load(std::int64_t row, std::int64_t col, std::int64_t n, NormRows<T>& rows,
            std::int64_t r) const {
    T *given = rows.given[r], *error = rows.error[r];
    const std::int64_t whole = round_up(n, kLanes);
    given_.piece(row, col, n, given);
    std::fill(given + n, given + whole, T{0});
    if (is_same_) return;
    if (used_) used_->piece(row, col, n, error);
    spans_.errors(job_.values, given, used_.has_value(), error, n);
    std::fill(error + n, error + whole, T{0});
  }

  const AttentionNormsJob& job_;
  const NormSpansOf<T>& spans_;
  std::int64_t cols_, length_;
  AttentionOperandValues given_;
  std::optional<AttentionOperandValues> used_;
  bool is_same_;
};

}  // namespace

void measure_attention_norms(const Isa& isa, const Exec& exec, const AttentionNormsJob& job) {
  constexpr std::int64_t kRows = 256;  // of a unit, where no channels are asked for
  const std::int64_t rows = job.given.first.rows(), cols = job.given.first.cols(),
                     step = job.channels != nullptr ? job.rows_per_range : kRows,
                     heads = job.batches * job.heads, ranges = blocks(rows, step);
  const int threads = useful_threads(exec, heads * rows * cols);
  const bool is_wide =
      !job.given.first.is_quantized() && job.given.first.values.dtype == DType::f64;
  parallel_units(heads * ranges, threads, [&](std::int64_t unit) {
    const std::int64_t head = unit / ranges, first = unit % ranges * step;
    const auto of_head = [&](double* all) { return all != nullptr ? all + head * rows : nullptr; };
    const auto run = [&]<typename T>(T) {
      Measurer<T>(isa, job, head / job.heads, head % job.heads)
          .run(first, std::min(rows, first + step), of_head(job.row_squares),
               of_head(job.row_error_squares),
               job.channels != nullptr ? job.channels + unit * cols : nullptr);
    };
    is_wide ? run(double{}) : run(float{});
  });
}

}  // namespace octavo::cpu
