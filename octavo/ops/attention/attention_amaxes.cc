#include "octavo/ops/attention/attention_amaxes_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "octavo/base/running_extremes.h"
#include "octavo/ops/gemm.h"

namespace octavo {
namespace {

constexpr std::int64_t kRows = 128;  // of queries, whose scores are in memory together

// Rows of a head, of a tensor of any number of leading dimensions.
View matrix_of(const Tensor& tensor, std::int64_t batch, std::int64_t head, std::int64_t first,
               std::int64_t rows) {
  const View view = AttentionStack(tensor, "attention", "a copy").elements();
  auto* const at = static_cast<std::byte*>(view.data) + batch * view.strides[0] +
                   head * view.strides[1] + first * view.strides[2];
  return value_view(at, view.dtype, {rows, view.shape[3]});
}

// Of the keys that a row sees and no bias masks.
double row_amax(const AttentionJob& job, std::int64_t batch, std::int64_t head, std::int64_t row,
                const float* scores) {
  const AttentionJob::Keys seen = job.keys_of(batch, row);
  const float* const bias = job.bias.first != nullptr ? job.bias.at(batch, head, row) : nullptr;
  double most = 0.0;
  for (std::int64_t key = seen.begin; key < seen.end; ++key)
    if (bias == nullptr || bias[key * job.bias.key] != -HUGE_VALF)
      raise(most, std::abs(static_cast<double>(scores[key])));
  return most;
}

}  // namespace

float score_amax(const AttentionCall& call) {
  const AttentionOptions& options = call.options;
  const AttentionInputs inputs =
      attention_inputs(call.q_operand, call.k_operand, call.v_operand, options);
  const AttentionJob job = call.job();
  double most = 0.0;
  for (std::int64_t batch = 0; batch < job.batches; ++batch)
    for (std::int64_t head = 0; head < job.heads; ++head)
      for (std::int64_t first = 0; first < job.queries && job.keys > 0; first += kRows) {
        const std::int64_t rows = std::min(kRows, job.queries - first);
        const Tensor scores =
            gemm(matrix_of(inputs.q, batch, head, first, rows),
                 matrix_of(inputs.k, batch, job.kv_head(head), 0, job.keys),
                 {.threads = options.threads, .backend = options.backend, .log = options.log});
        for (std::int64_t row = 0; row < rows; ++row)
          raise(most, row_amax(job, batch, head, first + row,
                               scores.span<float>().data() + row * job.keys));
      }
  most *= std::abs(job.softmax_scale);
  if (job.soft_cap != 0.0) most = job.soft_cap * std::tanh(most / job.soft_cap);
  return static_cast<float>(most);
}

}  // namespace octavo
