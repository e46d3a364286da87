#include "octavo/ops/attention/attention_sample_rows_internal.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "octavo/backend/attention_sink.h"
#include "octavo/ops/attention/attention_rungs_internal.h"

namespace octavo {

void SampleRows::sample(std::vector<SampleRow> rows) {
  rows_ = std::move(rows);
  scratch_ = Tensor::values({call_.q.batches(), call_.q.heads(), call_.q.rows(), call_.v.cols()},
                            DType::f32);
  std::vector<std::size_t> all(rows_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  AttentionJob job = rung_inputs(call_, AttentionRung::f32, exec_).job;
  const AttentionSinks sinks = job.sinks;
  job.sinks = {};
  const auto count = static_cast<std::size_t>(call_.q.batches() * call_.q.heads() * call_.q.rows());
  std::vector<float> once(count), twice(count);
  job.log_sum_exp = once.data();
  exact_ = run(job, all);
  job.log_sum_exp = twice.data();
  job.softmax_scale *= 2.0;
  job.soft_cap *= 2.0;
  job.bias.factor *= 2.0F;
  (void)run(job, all);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    SampleRow& row = rows_[i];
    const double lse = static_cast<double>(once[place(row)]),
                 of_double = static_cast<double>(twice[place(row)]);
    if (lse == -HUGE_VAL) {
      row.n_eff = HUGE_VAL;
      continue;
    }
    row.lse = once[place(row)];
    row.share = beside_sink(sinks, row.head, lse * std::numbers::log2e).share;
    take_share(i, static_cast<float>(row.share));
    const double n_eff = std::exp(2.0 * lse - of_double) / (row.share * row.share);
    row.n_eff = n_eff < 1.0 ? 1.0 : n_eff;  // rounding may put one key below 1; NaN stays
  }
}

// The row was computed without its sink.
void SampleRows::take_share(std::size_t i, float share) {
  const auto width = static_cast<std::size_t>(call_.v.cols());
  for (std::size_t e = 0; e < width; ++e) exact_[i * width + e] *= share;
}

std::vector<float> SampleRows::probed(AttentionJob job, std::span<const std::size_t> which) {
  job.log_sum_exp = nullptr;
  return run(job, which);
}

std::vector<float> SampleRows::run(AttentionJob& job, std::span<const std::size_t> which) {
  std::vector<AttentionRange> ranges;
  ranges.reserve(which.size());
  for (const std::size_t i : which)
    ranges.push_back({rows_[i].batch, rows_[i].head, rows_[i].row, 1});
  job.out = AttentionStack(Operand(scratch_), "attention", "a copy").operand();
  job.ranges = ranges.data();
  job.range_count = static_cast<std::int64_t>(ranges.size());
  run_attention(exec_, call_.options, job);
  const std::span<const float> all = scratch_.span<float>();
  const auto width = static_cast<std::size_t>(call_.v.cols());
  std::vector<float> result(which.size() * width);
  for (std::size_t i = 0; i < which.size(); ++i)
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(place(rows_[which[i]]) * width), width,
                result.begin() + static_cast<std::ptrdiff_t>(i * width));
  return result;
}

}  // namespace octavo
