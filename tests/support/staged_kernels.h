// A kernel table over host memory whose every entry runs a device's kernel through StagedCall. What
// the device does not offer is not offered here either.
#pragma once

#include "octavo/backend/align_job.h"
#include "octavo/backend/attention_job.h"
#include "octavo/backend/device.h"
#include "tests/support/staged_call.h"

namespace octavo::support {

// Kernel table entries are plain functions, so the device is a template argument: a function that
// returns it.
template <const DeviceApi& (*kDevice)()>
struct StagedKernels {
  static void encode(const Exec& exec, const Matrix& values, const Matrix& codes,
                     const EncodePolicy& policy, Counts* counts) {
    StagedCall call(kDevice(), exec);
    call.reads(values);
    call.writes(codes);
    call.updates(counts);
    call.start();
    kDevice().kernels->encode(call.exec(), call.there(values), call.there(codes), policy,
                              call.there(counts));
    call.finish();
  }

  static void decode(const Exec& exec, const Matrix& codes, const Matrix& values) {
    StagedCall call(kDevice(), exec);
    call.reads(codes);
    call.writes(values);
    call.start();
    kDevice().kernels->decode(call.exec(), call.there(codes), call.there(values));
    call.finish();
  }

  static void encode_scaled(const Exec& exec, const Matrix& values, const Matrix& codes,
                            const Factors& factors, const EncodePolicy& policy, Counts* counts) {
    StagedCall call(kDevice(), exec);
    call.reads(values);
    call.writes(codes);
    call.updates(counts);
    const Factors there = start(call, factors);
    kDevice().kernels->encode_scaled(call.exec(), call.there(values), call.there(codes), there,
                                     policy, call.there(counts));
    call.finish();
  }

  static void decode_scaled(const Exec& exec, const Matrix& codes, const Matrix& values,
                            const Factors& factors) {
    StagedCall call(kDevice(), exec);
    call.reads(codes);
    call.writes(values);
    const Factors there = start(call, factors);
    kDevice().kernels->decode_scaled(call.exec(), call.there(codes), call.there(values), there);
    call.finish();
  }

  // Starts a call that has factors as well.
  static Factors start(StagedCall& call, const Factors& factors) {
    const Matrix made{.data = factors.made,
                      .dtype = DType::f64,
                      .rows = 1,
                      .cols = 1,
                      .row_pitch = sizeof(double),
                      .col_stride = sizeof(double)};
    call.reads(factors.each);
    call.reads(factors.amax);
    if (factors.made != nullptr) call.writes(made);
    call.start();
    Factors there = factors;
    if (factors.is_array()) there.each = call.there(factors.each);
    there.amax = call.there(factors.amax);
    if (factors.made != nullptr) there.made = static_cast<double*>(call.there(made).data);
    return there;
  }

  static void quantize(const Exec& exec, const QuantizeJob& job) {
    StagedCall call(kDevice(), exec);
    call.reads(job.source);
    for (const QuantizedMatrix* copy : {&job.rowwise, &job.columnwise}) {
      if (!copy->wanted()) continue;
      call.writes(copy->codes);
      call.writes(copy->scales);
      call.reads(copy->tensor_scale);
    }
    for (const float* given : {job.given_amax, job.given_inv_scale, job.tensor_amax})
      call.reads(given);
    if (job.column_weights != nullptr) call.reads(job.column_weights, job.source.cols());
    call.updates(job.amax);
    call.updates(job.counts);
    call.start();
    QuantizeJob there = job;
    there.source = call.there(job.source);
    if (job.rowwise.wanted()) there.rowwise = call.there(job.rowwise);
    if (job.columnwise.wanted()) there.columnwise = call.there(job.columnwise);
    there.given_amax = call.there(job.given_amax);
    there.given_inv_scale = call.there(job.given_inv_scale);
    there.tensor_amax = call.there(job.tensor_amax);
    there.column_weights = call.there(job.column_weights);
    there.amax = call.there(job.amax);
    there.counts = call.there(job.counts);
    kDevice().kernels->quantize(call.exec(), there);
    call.finish();
  }

  static void dequantize(const Exec& exec, const QuantizedMatrix& from, const Matrix& values) {
    StagedCall call(kDevice(), exec);
    call.reads(from);
    call.writes(values);
    call.start();
    kDevice().kernels->dequantize(call.exec(), call.there(from), call.there(values));
    call.finish();
  }

  static void amax(const Exec& exec, const QuantizeSource& source, AmaxOf of, float* amax) {
    StagedCall call(kDevice(), exec);
    call.reads(source);
    call.updates(amax);
    call.start();
    kDevice().kernels->amax(call.exec(), call.there(source), of, call.there(amax));
    call.finish();
  }

  static void tensor_scale(const Exec& exec, const ScaleSpec& spec, const Format& element,
                           const float* amax, float* scale) {
    StagedCall call(kDevice(), exec);
    call.reads(amax);
    call.writes(scale);
    call.start();
    kDevice().kernels->tensor_scale(call.exec(), spec, element, call.there(amax),
                                    call.there(scale));
    call.finish();
  }

  static void align_exponents(const Exec& exec, const MxAlignJob& job) {
    StagedCall call(kDevice(), exec);
    call.reads(job.from);
    call.writes(job.to.codes);
    call.writes(job.to.scales);
    call.updates(job.changed);
    call.start();
    kDevice().kernels->align_exponents(call.exec(), {.from = call.there(job.from),
                                                     .to = call.there(job.to),
                                                     .changed = call.there(job.changed)});
    call.finish();
  }

  static bool quantize_aligned(const Exec& exec, const QuantizeJob& mx, const QuantizedMatrix& to,
                               std::int64_t* changed) {
    StagedCall call(kDevice(), exec);
    call.reads(mx.source);
    call.writes(to.codes);
    call.writes(to.scales);
    call.updates(changed);
    call.start();
    QuantizeJob there = mx;
    there.source = call.there(mx.source);
    there.rowwise.codes = call.there(mx.rowwise.codes);
    if (!kDevice().kernels->quantize_aligned(call.exec(), there, call.there(to),
                                             call.there(changed)))
      return false;  // and what is in memory there stays there
    call.finish();
    return true;
  }

  static void produce(const Exec& exec, const Matrix& x, const Producer& producer,
                      const Matrix& out) {
    StagedCall call(kDevice(), exec);
    call.reads(x);
    call.reads(producer, x.rows);
    call.writes(out);
    call.start();
    kDevice().kernels->produce(call.exec(), call.there(x), call.there(producer), call.there(out));
    call.finish();
  }

  // It reads types, sizes and strides, and the alignment of addresses.
  static bool fuses(const QuantizeJob& job) { return kDevice().kernels->fuses(job); }

  static void delayed_update(const Exec& exec, const DelayedJob& job) {
    StagedCall call(kDevice(), exec);
    const auto updates = [&](const FloatRow& row, std::int64_t count, std::int64_t rows,
                             std::int64_t pitch) {
      const Matrix numbers{.data = row.data,
                           .dtype = DType::f32,
                           .rows = rows,
                           .cols = count,
                           .row_pitch = pitch,
                           .col_stride = row.stride};
      call.reads(numbers);
      call.writes(numbers);
    };
    updates(job.history, job.length, job.tensors, job.tensor_stride);
    updates(job.inv_scale, job.tensors, 1, 0);
    updates(job.scale, job.tensors, 1, 0);
    updates(job.last, job.tensors, 1, 0);
    updates(job.calls, 1, 1, 0);
    call.start();
    DelayedJob there = job;
    if (job.tensors > 0)
      for (FloatRow* row : {&there.history, &there.inv_scale, &there.scale, &there.last})
        row->data = call.there(row->data);
    there.calls.data = call.there(job.calls.data);
    kDevice().kernels->delayed_update(call.exec(), there);
    call.finish();
  }

  static void gemm(const Exec& exec, const GemmJob& job) {
    StagedCall call(kDevice(), exec);
    for (const GemmOperand* operand : {&job.a, &job.b})
      operand->is_quantized() ? call.reads(operand->quantized) : call.reads(operand->values);
    call.reads(job.bias);
    call.reads(job.residual);
    call.writes(job.out);
    call.start();
    GemmJob there = job;
    for (GemmOperand* operand : {&there.a, &there.b})
      operand->is_quantized() ? void(operand->quantized = call.there(operand->quantized))
                              : void(operand->values = call.there(operand->values));
    if (job.bias.data != nullptr) there.bias = call.there(job.bias);
    if (job.residual.data != nullptr) there.residual = call.there(job.residual);
    there.out = call.there(job.out);
    kDevice().kernels->gemm(call.exec(), there);
    call.finish();
  }
  static bool gemm_offered(const GemmJob& job) { return kDevice().kernels->gemm_offered(job); }

  static void column_sums(const Exec& exec, const Matrix& values, const Matrix& before,
                          const Matrix& sums) {
    StagedCall call(kDevice(), exec);
    call.reads(values);
    call.reads(before);
    call.writes(sums);
    call.start();
    kDevice().kernels->column_sums(call.exec(), call.there(values),
                                   before.data != nullptr ? call.there(before) : before,
                                   call.there(sums));
    call.finish();
  }

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

  static std::int64_t count_nan(const Exec& exec, const Matrix& values) {
    StagedCall call(kDevice(), exec);
    call.reads(values);
    call.start();
    const std::int64_t count = kDevice().kernels->count_nan(call.exec(), call.there(values));
    call.finish();
    return count;
  }

  static Kernels table(const char* name) {
    const Kernels& device = *kDevice().kernels;
    Kernels table{.name = name, .description = device.description};
    const auto offer = [&](auto entry, auto staged) {
      if (device.*entry != nullptr) table.*entry = staged;
    };
    offer(&Kernels::encode, &encode);
    offer(&Kernels::decode, &decode);
    offer(&Kernels::encode_scaled, &encode_scaled);
    offer(&Kernels::decode_scaled, &decode_scaled);
    offer(&Kernels::quantize, &quantize);
    offer(&Kernels::dequantize, &dequantize);
    offer(&Kernels::amax, &amax);
    offer(&Kernels::tensor_scale, &tensor_scale);
    offer(&Kernels::align_exponents, &align_exponents);
    offer(&Kernels::quantize_aligned, &quantize_aligned);
    offer(&Kernels::produce, &produce);
    offer(&Kernels::fuses, &fuses);
    offer(&Kernels::delayed_update, &delayed_update);
    offer(&Kernels::gemm, &gemm);
    offer(&Kernels::gemm_offered, &gemm_offered);
    offer(&Kernels::column_sums, &column_sums);
    offer(&Kernels::attention, &attention);
    offer(&Kernels::attention_offered, &attention_offered);
    offer(&Kernels::attention_backward, &attention_backward);
    offer(&Kernels::attention_backward_offered, &attention_backward_offered);
    offer(&Kernels::attention_prepare, &attention_prepare);
    offer(&Kernels::attention_statistics, &attention_statistics);
    offer(&Kernels::count_nan, &count_nan);
    return table;
  }
};

}  // namespace octavo::support
