// Norms for certified bounds of attention, and how far the reference attention itself may be off.
#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/backend/attention_norms_job.h"
#include "octavo/backend/reference/attention_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"

namespace octavo::reference {
namespace {

using Rows = std::vector<double>;

Rows centers_of(const GemmOperand& given, std::int64_t length) {
  const std::int64_t count = std::min(length, kCenterRows);
  Rows centers(static_cast<std::size_t>(given.cols()), 0.0);
  for (std::int64_t i = 0; i < count; ++i) {
    const Rows row = rows_of(given, i * length / count, 1, DType::f64);
    for (std::size_t d = 0; d < row.size(); ++d) centers[d] += row[d] / static_cast<double>(count);
  }
  return centers;
}

void add(AttentionChannel& channel, double given, double used) {
  channel.least = std::min(channel.least, given);
  channel.most = std::max(channel.most, given);
  const double off = given - channel.center, error = given - used;
  channel.sum += off;
  channel.squares += off * off;
  channel.fourth_powers += off * off * off * off;
  channel.error = std::max(channel.error, std::abs(error));
  channel.error_squares += error * error;
}

void measure(const AttentionNormsJob& job, std::int64_t batch, std::int64_t head) {
  const GemmOperand given = job.given.at(batch, head);
  const std::int64_t rows = given.rows(), cols = given.cols(), at = batch * job.heads + head,
                     length = job.lengths != nullptr ? job.lengths[batch] : rows,
                     step = job.channels != nullptr ? job.rows_per_range : 1,
                     ranges = (rows + step - 1) / step;
  const Rows centers = job.channels != nullptr ? centers_of(given, length) : Rows{};
  AttentionChannel* const channels =
      job.channels != nullptr ? job.channels + at * ranges * cols : nullptr;
  for (std::int64_t i = 0; channels != nullptr && i < ranges * cols; ++i)
    channels[i] = {.center = centers[static_cast<std::size_t>(i % cols)]};
  for (std::int64_t row = 0; row < rows; ++row) {
    double squares = 0.0, error_squares = 0.0;
    if (row < length) {
      const Rows x = rows_of(given, row, 1, DType::f64),
                 y = job.used != nullptr ? rows_of(job.used->at(batch, head), row, 1, DType::f64)
                                         : rows_of(given, row, 1, job.values);
      for (std::int64_t d = 0; d < cols; ++d) {
        const double number = x[static_cast<std::size_t>(d)],
                     error = number - y[static_cast<std::size_t>(d)];
        squares += number * number;
        error_squares += error * error;
        if (channels != nullptr)
          add(channels[row / step * cols + d], number, y[static_cast<std::size_t>(d)]);
      }
    }
    if (job.row_squares != nullptr) job.row_squares[at * rows + row] = squares;
    if (job.row_error_squares != nullptr) job.row_error_squares[at * rows + row] = error_squares;
  }
}

}  // namespace

void attention_norms(const Exec&, const AttentionNormsJob& job) {
  const FpEnvGuard guard;
  for (std::int64_t batch = 0; batch < job.batches; ++batch)
    for (std::int64_t head = 0; head < job.heads; ++head) measure(job, batch, head);
}

// Everything but P is in f64, whose elementary functions are within a few ulps.
bool attention_rounding(const AttentionJob& job, AttentionRounding& rounding) {
  constexpr double kUnit = 0x1p-53;
  rounding = {.unit = kUnit,
              .scores = static_cast<double>(job.q.first.cols() + 8) * kUnit,
              .weights = 8.0 * kUnit,
              .lost = 0x1p-1000,
              .sums = static_cast<double>(job.keys + 8) * kUnit};
  switch (job.p) {
    case AttentionP::f64:
      return true;
    case AttentionP::f32:
      rounding.weights += 0x1p-24;
      rounding.lost = 0x1p-149;
      return true;
    case AttentionP::bf16:
      rounding.weights += 0x1p-8;
      rounding.lost = 0x1p-133;
      return true;
    case AttentionP::f16:
      rounding.weights += 0x1p-11;
      rounding.lost = 0x1p-25 / static_cast<double>(job.p_factor);
      return true;
    // Below 2^-6 steps of e4m3 are 2^-9, of P times 256.
    case AttentionP::fp8:
      rounding.weights += 0x1p-4;
      rounding.lost = 0x1p-10 / static_cast<double>(job.p_factor);
      return true;
    // hi leaves less than 2^-3 of P, or 2^-9, and lo 2^-4 of that, or half a step.
    case AttentionP::fp8_split:
      rounding.weights += 0x1p-7;
      rounding.lost = 0x1p-10 / static_cast<double>(job.p_factor);
      return true;
    case AttentionP::fp8_normalized:
      return false;  // its divisor is not the sum of what it multiplies
  }
  return false;
}

}  // namespace octavo::reference
