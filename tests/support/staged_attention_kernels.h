// Attention of a device over host memory, through StagedCall: entries of a StagedKernels table.
#pragma once

#include "octavo/backend/attention_job.h"
#include "octavo/backend/device.h"
#include "tests/support/staged_call.h"

namespace octavo::support {

template <const DeviceApi& (*kDevice)()>
struct StagedAttentionKernels {
  // What a job of attention reads beside its operands. Rows that a range leaves out keep what they
  // have: then results are inputs as well.
  static void add_inputs(StagedCall& call, const AttentionJob& job) {
    call.reads(job.q, job.batches, job.heads);
    call.reads(job.k, job.batches, job.kv_heads);
    call.reads(job.v, job.batches, job.kv_heads);
    const std::int64_t depth = job.q.first.cols();
    if (job.key_shift != nullptr) call.reads(job.key_shift, job.batches * job.kv_heads * depth);
    if (job.query_lengths != nullptr) call.reads(job.query_lengths, job.batches);
    if (job.key_lengths != nullptr) call.reads(job.key_lengths, job.batches);
    if (job.ranges != nullptr) call.reads(job.ranges, job.range_count);
    call.reads(bias_of(job), job.batches, job.heads);
    if (job.sinks.exist()) call.reads(sinks_of(job));
  }
  static constexpr std::int64_t kBytes = sizeof(float);
  static AttentionOperand bias_of(const AttentionJob& job) {
    AttentionOperand bias{.batch_pitch = job.bias.batch * kBytes,
                          .head_pitch = job.bias.head * kBytes};
    if (job.bias.first != nullptr)
      bias.first.values = {.data = const_cast<float*>(job.bias.first),
                           .rows = job.queries,
                           .cols = job.keys,
                           .row_pitch = job.bias.row * kBytes,
                           .col_stride = job.bias.key * kBytes};
    return bias;
  }
  static Matrix sinks_of(const AttentionJob& job) {
    return {.data = const_cast<float*>(job.sinks.first),
            .rows = 1,
            .cols = job.heads,
            .row_pitch = 0,
            .col_stride = job.sinks.step * kBytes};
  }
  static AttentionJob inputs_there(const StagedCall& call, AttentionJob job) {
    job.q = call.there(job.q);
    job.k = call.there(job.k);
    job.v = call.there(job.v);
    if (job.key_shift != nullptr) job.key_shift = call.there(job.key_shift);
    if (job.query_lengths != nullptr) job.query_lengths = call.there(job.query_lengths);
    if (job.key_lengths != nullptr) job.key_lengths = call.there(job.key_lengths);
    if (job.ranges != nullptr) job.ranges = call.there(job.ranges);
    if (job.bias.first != nullptr && job.queries > 0 && job.keys > 0)
      job.bias.first = call.there(job.bias.first);
    if (job.sinks.exist() && job.heads > 0) job.sinks.first = call.there(job.sinks.first);
    return job;
  }

  // The device's kernel with the workspace that it asks for.
  template <typename Job>
  static void with_workspace(const StagedCall& call, const Job& job,
                             void (*kernel)(const Exec&, const Job&),
                             std::int64_t (*workspace)(const Exec&, const Job&)) {
    Exec exec = call.exec();
    const std::int64_t bytes = workspace != nullptr ? workspace(exec, job) : 0;
    void* const memory =
        bytes > 0 ? kDevice().allocate(exec, static_cast<std::size_t>(bytes)) : nullptr;
    exec.workspace = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
    kernel(exec, job);
    if (memory != nullptr) kDevice().release(call.exec(), memory);
  }

  static void attention(const Exec& exec, const AttentionJob& job) {
    StagedCall call(kDevice(), exec);
    add_inputs(call, job);
    const std::int64_t rows = job.batches * job.heads * job.queries;
    const bool keeps = job.ranges != nullptr;
    if (keeps) call.reads(job.out, job.batches, job.heads);
    call.writes(job.out, job.batches, job.heads);
    for (float* result : {job.log_sum_exp, job.largest_weight}) {
      if (result == nullptr) continue;
      if (keeps) call.reads(result, rows);
      call.writes(result, rows);
    }
    call.updates(job.p_amax);
    call.start();
    AttentionJob there = inputs_there(call, job);
    there.out = call.there(job.out);
    if (rows > 0) {
      if (job.log_sum_exp != nullptr) there.log_sum_exp = call.there(job.log_sum_exp);
      if (job.largest_weight != nullptr) there.largest_weight = call.there(job.largest_weight);
    }
    there.p_amax = call.there(job.p_amax);
    with_workspace(call, there, kDevice().kernels->attention,
                   kDevice().kernels->attention_workspace);
    call.finish();
  }
  static bool attention_offered(const AttentionJob& job) {
    return kDevice().kernels->attention_offered(job);
  }

  static void attention_backward(const Exec& exec, const AttentionBackwardJob& job) {
    StagedCall call(kDevice(), exec);
    const AttentionJob& forward = job.forward;
    const std::int64_t rows = forward.batches * forward.heads * forward.queries;
    add_inputs(call, forward);
    call.reads(job.d_out, forward.batches, forward.heads);
    if (forward.log_sum_exp != nullptr) {
      call.reads(forward.out, forward.batches, forward.heads);
      call.reads(forward.log_sum_exp, rows);
    }
    call.writes(job.d_q, forward.batches, forward.heads);
    call.writes(job.d_k, forward.batches, forward.kv_heads);
    call.writes(job.d_v, forward.batches, forward.kv_heads);
    if (job.d_sinks != nullptr) {
      call.reads(job.d_sinks, forward.heads);
      call.writes(job.d_sinks, forward.heads);
    }
    call.start();
    AttentionBackwardJob there = job;
    there.forward = inputs_there(call, forward);
    there.d_out = call.there(job.d_out);
    if (forward.log_sum_exp != nullptr) {
      there.forward.out = call.there(forward.out);
      there.forward.log_sum_exp = call.there(forward.log_sum_exp);
    }
    there.d_q = call.there(job.d_q);
    there.d_k = call.there(job.d_k);
    there.d_v = call.there(job.d_v);
    if (job.d_sinks != nullptr && forward.heads > 0) there.d_sinks = call.there(job.d_sinks);
    with_workspace(call, there, kDevice().kernels->attention_backward,
                   kDevice().kernels->attention_backward_workspace);
    call.finish();
  }
  static bool attention_backward_offered(const AttentionBackwardJob& job) {
    return kDevice().kernels->attention_backward_offered(job);
  }

  static void attention_prepare(const Exec& exec, const AttentionPrepareJob& job) {
    StagedCall call(kDevice(), exec);
    const std::int64_t means = job.batches * job.heads * job.from.first.cols();
    call.reads(job.from, job.batches, job.heads);
    call.writes(job.to, job.batches, job.heads);
    if (job.lengths != nullptr) call.reads(job.lengths, job.batches);
    if (job.mean != nullptr) job.undo ? call.reads(job.mean, means) : call.writes(job.mean, means);
    call.start();
    AttentionPrepareJob there = job;
    there.from = call.there(job.from);
    there.to = call.there(job.to);
    if (job.lengths != nullptr) there.lengths = call.there(job.lengths);
    if (job.mean != nullptr && means > 0) there.mean = call.there(job.mean);
    kDevice().kernels->attention_prepare(call.exec(), there);
    call.finish();
  }

  static void attention_statistics(const Exec& exec, const AttentionStatisticsJob& job) {
    StagedCall call(kDevice(), exec);
    const std::int64_t rows = job.of.first.rows(),
                       ranges = (rows + job.rows_per_range - 1) / job.rows_per_range;
    call.reads(job.of, job.batches, job.heads);
    if (job.lengths != nullptr) call.reads(job.lengths, job.batches);
    call.writes(job.result, job.batches * job.heads * ranges);
    call.start();
    AttentionStatisticsJob there = job;
    there.of = call.there(job.of);
    if (job.lengths != nullptr) there.lengths = call.there(job.lengths);
    there.result = call.there(job.result);
    kDevice().kernels->attention_statistics(call.exec(), there);
    call.finish();
  }
};

}  // namespace octavo::support
