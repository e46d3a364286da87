// Gradients of attention through the kernel table as a C function, so that a Python program can
// time them beside others on the memory of their tensors.
#include <cmath>
#include <cstdint>
#include <exception>
#include <string>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cuda.h"
#include "octavo/backend/registry.h"
#include "octavo/octavo.h"

namespace {

using octavo::AttentionBackwardJob;
using octavo::AttentionOperand;
using octavo::AttentionP;
using octavo::DType;

AttentionOperand dense(void* data, DType dtype, std::int64_t heads, std::int64_t rows,
                       std::int64_t cols) {
  const std::int64_t each = dtype == DType::f32 ? 4 : 2;
  AttentionOperand made{.batch_pitch = heads * rows * cols * each,
                        .head_pitch = rows * cols * each};
  made.first.values = {.data = data,
                       .dtype = dtype,
                       .rows = rows,
                       .cols = cols,
                       .row_pitch = cols * each,
                       .col_stride = each};
  return made;
}

}  // namespace

extern "C" {

// Dense [batches, heads, rows, size] of bf16; log_sum_exp is f32.
struct BenchAttentionBackward {
  void *q, *k, *v, *d_out, *out, *log_sum_exp, *d_q, *d_k, *d_v;
  std::int64_t batches, heads, kv_heads, queries, keys, size, causal;
  std::int64_t general;  // the kernel without tensor cores
  double dropout;
  void* workspace;
  std::int64_t workspace_bytes;
  void* stream;
};

// Returns null on success, else the problem.
__attribute__((visibility("default"))) const char* octavo_bench_attention_backward(
    const BenchAttentionBackward* call) {
  static std::string problem;
  try {
    const auto rows = [&](void* data) {
      return dense(data, DType::bf16, call->heads, call->queries, call->size);
    };
    const auto keys = [&](void* data) {
      return dense(data, DType::bf16, call->kv_heads, call->keys, call->size);
    };
    AttentionBackwardJob job{};
    job.forward = {.batches = call->batches,
                   .heads = call->heads,
                   .kv_heads = call->kv_heads,
                   .queries = call->queries,
                   .keys = call->keys};
    job.forward.q = rows(call->q);
    job.forward.k = keys(call->k);
    job.forward.v = keys(call->v);
    job.forward.out = rows(call->out);
    job.forward.log_sum_exp = static_cast<float*>(call->log_sum_exp);
    job.forward.softmax_scale = 1.0 / std::sqrt(static_cast<double>(call->size));
    job.forward.right = call->causal != 0 ? 0 : -1;
    job.forward.values = DType::bf16;
    job.forward.p = call->general != 0 ? AttentionP::f32 : AttentionP::bf16;
    job.forward.dropout = {call->dropout, 1};
    job.d_out = rows(call->d_out);
    job.d_q = rows(call->d_q);
    job.d_k = keys(call->d_k);
    job.d_v = keys(call->d_v);
    const octavo::Exec exec{.device = {octavo::DeviceKind::cuda, 0},
                            .stream = call->stream,
                            .workspace = {static_cast<std::byte*>(call->workspace),
                                          static_cast<std::size_t>(call->workspace_bytes)}};
    static const octavo::Kernels* kernels =
        octavo::device_api({octavo::DeviceKind::cuda, 0}).kernels;
    if (!kernels->attention_backward_offered(job)) return "not offered";
    if (kernels->attention_backward_workspace(exec, job) > call->workspace_bytes)
      return "too little workspace";
    kernels->attention_backward(exec, job);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

}  // extern "C"
