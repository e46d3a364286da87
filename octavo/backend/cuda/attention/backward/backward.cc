// Dispatch of gradients of attention: tensor cores where they can, with the general kernel behind
// them for numbers that they decline; else the general kernel.
#include <string>

#include "octavo/backend/cuda/attention/backward/backward_general.h"
#include "octavo/backend/cuda/attention/backward/backward_tensor_cores.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"
#include "octavo/base/log.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cuda {
namespace {

// Parts of the workspace: the general kernel's row sums, the flag that tensor cores declined, their
// own, and the results of a forward pass where none are given.
struct Parts {
  explicit Parts(const AttentionBackwardJob& job) {
    const AttentionJob& forward = job.forward;
    const auto take = [&](std::int64_t count) {
      const std::int64_t at = bytes;
      bytes += (count + 255) / 256 * 256;
      return at;
    };
    general = take(attention_backward_general_bytes(job));
    if (!attention_backward_on_tensor_cores(job)) return;
    declined = take(4);
    tensor_cores = take(attention_backward_tensor_core_bytes(job));
    if (forward.log_sum_exp != nullptr) return;
    const std::int64_t rows = forward.batches * forward.heads * forward.queries;
    out = take(rows * forward.v.first.cols() * 4);
    log_sum_exp = take(rows * 4);
  }
  std::int64_t general = 0, declined = 0, tensor_cores = 0, out = 0, log_sum_exp = 0, bytes = 0;
};

bool is_values(const AttentionOperand& operand) { return !operand.first.is_quantized(); }

void tell_general(const Exec& exec, const AttentionBackwardJob& job) {
  if (exec.log == nullptr || job.forward.p != AttentionP::bf16) return;
  exec.log->once(text("[attention_backward] head sizes ", job.forward.q.first.cols(), " and ",
                      job.forward.v.first.cols(), " of ",
                      dtype_name(job.forward.q.first.values.dtype),
                      " take the general kernel, which is far slower; tensor cores take bfloat16 "
                      "with head sizes of 64 and 128, without a bias"));
}

// out and log_sum_exp of the forward pass, in memory of the call.
void run_forward(const Exec& exec, AttentionJob& forward, float* out, float* log_sum_exp) {
  const std::int64_t width = forward.v.first.cols();
  forward.out = {.batch_pitch = forward.heads * forward.queries * width * 4,
                 .head_pitch = forward.queries * width * 4};
  forward.out.first.values = {.data = out,
                              .dtype = DType::f32,
                              .rows = forward.queries,
                              .cols = width,
                              .row_pitch = width * 4,
                              .col_stride = 4};
  forward.log_sum_exp = log_sum_exp;
  AttentionJob job = forward;
  job.values = DType::bf16;
  job.p_amax = job.largest_weight = nullptr;
  job.ranges = nullptr;
  attention(without_workspace(exec), job);
}

}  // namespace

bool attention_backward_offered(const AttentionBackwardJob& job) {
  return is_values(job.forward.q) && is_values(job.forward.k) && is_values(job.forward.v) &&
         is_values(job.d_out) && !job.forward.pages.exist();
}

std::int64_t attention_backward_workspace(const Exec&, const AttentionBackwardJob& job) {
  return Parts(job).bytes;
}

void attention_backward(const Exec& exec, const AttentionBackwardJob& job) {
  const Scope scope(exec);
  const Parts parts(job);
  const Scratch scratch(exec, static_cast<std::size_t>(parts.bytes));
  auto* const memory = scratch.as<unsigned char>();
  if (!attention_backward_on_tensor_cores(job)) {
    tell_general(exec, job);
    return attention_backward_general(exec, job, memory + parts.general, nullptr);
  }
  AttentionBackwardJob here = job;
  if (here.forward.log_sum_exp == nullptr)
    run_forward(exec, here.forward, reinterpret_cast<float*>(memory + parts.out),
                reinterpret_cast<float*>(memory + parts.log_sum_exp));
  auto* const declined = reinterpret_cast<unsigned*>(memory + parts.declined);
  attention_backward_tensor_cores(exec, here, memory + parts.tensor_cores, declined);
  attention_backward_general(exec, job, memory + parts.general, declined);
}

}  // namespace octavo::cuda
