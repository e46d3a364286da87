// A kernel table over host memory whose every entry runs a device's kernel through StagedCall. What
// the device does not offer is not offered here either.
#pragma once

#include "octavo/backend/align_job.h"
#include "octavo/backend/device.h"
#include "tests/support/staged_attention_kernels.h"
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

  static std::int64_t count_nan(const Exec& exec, const Matrix& values) {
    StagedCall call(kDevice(), exec);
    call.reads(values);
    call.start();
    const std::int64_t count = kDevice().kernels->count_nan(call.exec(), call.there(values));
    call.finish();
    return count;
  }

  static Kernels table(const char* name) {
    using Attention = StagedAttentionKernels<kDevice>;
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
    offer(&Kernels::attention, &Attention::attention);
    offer(&Kernels::attention_offered, &Attention::attention_offered);
    offer(&Kernels::attention_backward, &Attention::attention_backward);
    offer(&Kernels::attention_backward_offered, &Attention::attention_backward_offered);
    offer(&Kernels::attention_prepare, &Attention::attention_prepare);
    offer(&Kernels::attention_statistics, &Attention::attention_statistics);
    offer(&Kernels::count_nan, &count_nan);
    return table;
  }
};

}  // namespace octavo::support
