// Quantizers from bf16, dequantizers, and requantizers. Bytes count one read of the values, also
// where a quantizer must read twice.
#include "bench/cuda/device_side.h"
#include "bench/cuda/lab.h"
#include "octavo/backend/align_job.h"
#include "octavo/base/error.h"
#include "octavo/quant/scaling.h"

namespace octavo::bench {
namespace {

enum class Copies { row, column, both };
enum class Given { nothing, inv_scale, tensor_amax };

constexpr float kAmax = 6.0F;  // about that of the normal deviates

struct Question {
  Scaling scaling{};
  Copies copies = Copies::row;
  Given given = Given::nothing;
  bool scales_by_column = false;
};

Question question(std::string_view name, Copies copies = Copies::row,
                  Given given = Given::nothing) {
  return {.scaling = preset(name), .copies = copies, .given = given};
}

QuantizedMatrix make_copy(Lab& lab, const Question& asked, bool columnwise, Work& work) {
  const Scaling& scaling = asked.scaling;
  const std::int64_t rows = columnwise ? lab.cols : lab.rows,
                     cols = columnwise ? lab.rows : lab.cols;
  const std::int64_t grid_rows = tile_count(scaling.tile.rows, rows),
                     grid_cols = tile_count(scaling.tile.cols, cols);
  const bool packed = scaling.packed && scaling.format.bits() < 8;
  QuantizedMatrix copy{.tile = scaling.tile};
  copy.codes = Lab::matrix(DType::code, scaling.format, packed, rows, cols, work.keep);
  switch (scaling.scale.format) {
    case ScaleFormat::e8m0:
      copy.scales = Lab::matrix(DType::code, e8m0fnu, false, grid_rows, grid_cols, work.keep);
      break;
    case ScaleFormat::e4m3_f32:
      copy.scales = Lab::matrix(DType::code, e4m3fn, false, grid_rows, grid_cols, work.keep);
      copy.tensor_scale = lab.number(0, work.keep);
      lab.entry (&Kernels::tensor_scale)(lab.exec(), scaling.scale, scaling.format,
                                         lab.number(kAmax, work.keep), copy.tensor_scale);
      break;
    default:
      copy.scales = Lab::matrix(DType::f32, {}, false, grid_rows, grid_cols, work.keep);
  }
  if (asked.scales_by_column) {
    copy.scales.col_stride = grid_rows * copy.scales.col_stride;
    copy.scales.row_pitch = element_bytes(copy.scales.dtype, copy.scales.format);
  }
  work.bytes += bytes_of(copy.codes) + bytes_of(copy.scales);
  return copy;
}

QuantizeJob make_job(Lab& lab, const Question& asked, Work& work) {
  QuantizeJob job{.scale = asked.scaling.scale, .encode = asked.scaling.encode};
  job.scale.context = {.input = InputType::bf16, .per_tensor = asked.scaling.tile == Tile{0, 0}};
  if (asked.copies != Copies::column) job.rowwise = make_copy(lab, asked, false, work);
  if (asked.copies != Copies::row) job.columnwise = make_copy(lab, asked, true, work);
  if (asked.given == Given::inv_scale) {
    job.given_inv_scale = lab.number(448.0F / kAmax, work.keep);
    job.amax = lab.number(0, work.keep);
  }
  if (asked.given == Given::tensor_amax) job.tensor_amax = lab.number(kAmax, work.keep);
  return job;
}

std::function<Work(Lab&)> quantizing(const Question& asked) {
  return [=](Lab& lab) {
    Work work;
    QuantizeJob job = make_job(lab, asked, work);
    job.source.values = lab.values(DType::bf16);
    work.bytes += bytes_of(job.source.values);
    work.run = [=, entry = lab.entry(&Kernels::quantize)](const Exec& exec) { entry(exec, job); };
    job.source.values = lab.values(DType::bf16, 1);
    work.other = [=, entry = lab.entry(&Kernels::quantize)](const Exec& exec) { entry(exec, job); };
    return work;
  };
}

std::function<Work(Lab&)> dequantizing(const Question& asked) {
  return [=](Lab& lab) {
    Work work;
    QuantizeJob job = make_job(lab, asked, work);
    job.source.values = lab.values(DType::bf16);
    lab.entry (&Kernels::quantize)(lab.exec(), job);
    const Matrix values = Lab::matrix(DType::bf16, {}, false, lab.rows, lab.cols, work.keep);
    work.bytes += bytes_of(values);
    work.run = [=, entry = lab.entry(&Kernels::dequantize)](const Exec& exec) {
      entry(exec, job.rowwise, values);
    };
    return work;
  };
}

std::function<Work(Lab&)> requantizing(const Question& from, const Question& to) {
  return [=](Lab& lab) {
    Work work;
    QuantizeJob first = make_job(lab, from, work), second = make_job(lab, to, work);
    first.source.values = lab.values(DType::bf16);
    lab.entry (&Kernels::quantize)(lab.exec(), first);
    second.source.quantized = first.rowwise;
    second.scale.context.input = InputType::f32;
    work.run = [=, entry = lab.entry(&Kernels::quantize)](const Exec& exec) {
      entry(exec, second);
    };
    return work;
  };
}

// A norm or an activation of x, directly to codes. Its bar: a twentieth above the quantizer's.
std::function<Work(Lab&)> producing(ProducerKind kind, bool gated, const Question& asked) {
  return [=](Lab& lab) {
    Work work;
    QuantizeJob job = make_job(lab, asked, work);
    auto producer = std::make_shared<Producer>(Producer{.kind = kind, .gated = gated});
    job.source.values = lab.values(DType::bf16);
    if (producer->is_norm()) {
      producer->weight = lab.values(DType::bf16, 1);
      producer->weight.rows = 1;
    }
    if (gated) {  // each half is a whole matrix
      job.source.values = Lab::matrix(DType::bf16, {}, false, lab.rows, 2 * lab.cols, work.keep);
      must(cudaMemcpyAsync(job.source.values.data, lab.values(DType::bf16).data,
                           static_cast<std::size_t>(bytes_of(lab.values(DType::bf16))),
                           cudaMemcpyDeviceToDevice, lab.stream()),
           "gate");
    }
    job.source.producer = producer.get();
    work.bytes += bytes_of(job.source.values);
    check(lab.entry(&Kernels::fuses)(job), ErrorCode::unsupported, "bench", "not fused");
    work.run = [=, entry = lab.entry(&Kernels::quantize)](const Exec& exec) {
      (void)producer;  // keeps it alive
      entry(exec, job);
    };
    return work;
  };
}

// Aligned codes and scales, the output of align_exponents and quantize_aligned.
QuantizedMatrix make_aligned_copy(Lab& lab, std::int64_t run, Work& work) {
  Question asked = question("fp8-channel");
  asked.scaling.tile = {1, run};
  asked.scales_by_column = true;
  return make_copy(lab, asked, false, work);
}

std::int64_t* counter(Lab& lab, Work& work) {
  work.keep.push_back(Lab::buffer(sizeof(std::int64_t)));
  auto* const number = static_cast<std::int64_t*>(work.keep.back()->data());
  lab.api().clear(lab.exec(), number, sizeof(std::int64_t));
  return number;
}

// From bf16, in one pass.
std::function<Work(Lab&)> quantizing_aligned(bool counts) {
  return [=](Lab& lab) {
    Work work;
    const QuantizedMatrix to = make_aligned_copy(lab, 0, work);
    QuantizeJob job{.scale = preset("mxfp8").scale};
    job.source.values = lab.values(DType::bf16);
    job.rowwise = {.codes = to.codes, .tile = {1, kMxBlock}};
    work.bytes += bytes_of(job.source.values);
    std::int64_t* const changed = counts ? counter(lab, work) : nullptr;
    work.run = [=, entry = lab.entry(&Kernels::quantize_aligned)](const Exec& exec) {
      check(entry(exec, job, to, changed), ErrorCode::unsupported, "bench", "not in one pass");
    };
    return work;
  };
}

// From MX codes, as for weights.
std::function<Work(Lab&)> aligning(std::int64_t run) {
  return [=](Lab& lab) {
    Work work;
    QuantizeJob job = make_job(lab, question("mxfp8"), work);
    job.source.values = lab.values(DType::bf16);
    lab.entry (&Kernels::quantize)(lab.exec(), job);
    const MxAlignJob align_exponents{.from = job.rowwise,
                                     .to = make_aligned_copy(lab, run, work),
                                     .changed = counter(lab, work)};
    work.run = [=, entry = lab.entry(&Kernels::align_exponents)](const Exec& exec) {
      entry(exec, align_exponents);
    };
    return work;
  };
}

Work finding_amax(Lab& lab) {
  Work work;
  QuantizeSource source;
  source.values = lab.values(DType::bf16);
  float* const amax = lab.number(0, work.keep);
  work.bytes = bytes_of(source.values);
  work.run = [=, entry = lab.entry(&Kernels::amax)](const Exec& exec) {
    entry(exec, source, AmaxOf::all, amax);
  };
  return work;
}

}  // namespace

std::vector<Case> quantize_cases() {
  Question by_column = question("fp8-1x128");
  by_column.scales_by_column = true;
  const Question nvfp4 = question("nvfp4", Copies::row, Given::tensor_amax);
  Question stochastic = nvfp4;
  stochastic.scaling.encode.rounding = Rounding::stochastic;
  Question by_te = question("mxfp8");
  by_te.scaling.scale.arith = Arith::te;
  const auto both = [](const char* name) { return question(name, Copies::both); };
  return {
      {"quantize", "amax alone (read only)", 0, finding_amax},
      {"quantize", "fp8, current", 0.57, quantizing(question("fp8"))},
      {"quantize", "fp8, current, both", 0, quantizing(both("fp8"))},
      {"quantize", "fp8, delayed, amax out", 0,
       quantizing(question("fp8", Copies::row, Given::inv_scale))},
      {"quantize", "fp8, delayed, both", 0,
       quantizing(question("fp8", Copies::both, Given::inv_scale))},
      {"quantize", "fp8-channel", 0.93, quantizing(question("fp8-channel"))},
      {"quantize", "fp8-1x128", 0.93, quantizing(question("fp8-1x128"))},
      {"quantize", "fp8-1x128, scales by column", 0.93, quantizing(by_column)},
      {"quantize", "fp8-1x128, both", 0, quantizing(both("fp8-1x128"))},
      {"quantize", "fp8-block", 0, quantizing(question("fp8-block"))},
      {"quantize", "mxfp8, row", 0.95, quantizing(question("mxfp8"))},
      {"quantize", "mxfp8, row, aligned", 0, quantizing_aligned(false)},
      {"quantize", "mxfp8, row, aligned, counted", 0, quantizing_aligned(true)},
      {"quantize", "mxfp8, column", 0, quantizing(question("mxfp8", Copies::column))},
      {"quantize", "mxfp8, both", 0.90, quantizing(both("mxfp8"))},
      {"quantize", "mxfp6", 0, quantizing(question("mxfp6"))},
      {"quantize", "mxfp4", 0, quantizing(question("mxfp4"))},
      {"quantize", "mxint8", 0, quantizing(question("mxint8"))},
      {"quantize", "nvfp4, tensor amax given", 0.85, quantizing(nvfp4)},
      {"quantize", "mxfp8, arith te", 0, quantizing(by_te)},
      {"quantize", "nvfp4, stochastic", 0, quantizing(stochastic)},
      {"dequantize", "fp8", 0, dequantizing(question("fp8"))},
      {"dequantize", "fp8-channel", 0, dequantizing(question("fp8-channel"))},
      {"dequantize", "fp8-1x128", 0, dequantizing(question("fp8-1x128"))},
      {"dequantize", "fp8-block", 0, dequantizing(question("fp8-block"))},
      {"dequantize", "mxfp8", 0, dequantizing(question("mxfp8"))},
      {"dequantize", "mxfp6", 0, dequantizing(question("mxfp6"))},
      {"dequantize", "mxfp4", 0, dequantizing(question("mxfp4"))},
      {"dequantize", "nvfp4", 0, dequantizing(nvfp4)},
      {"requantize", "mxfp8 to fp8", 0, requantizing(question("mxfp8"), question("fp8"))},
      {"requantize", "mxfp8 to mxfp8, column", 0,
       requantizing(question("mxfp8"), question("mxfp8", Copies::column))},
      {"requantize", "mxfp8 to fp8-channel", 0,
       requantizing(question("mxfp8"), question("fp8-channel"))},
      {"align", "mxfp8 by row", 0, aligning(0)},
      {"align", "mxfp8 by 128 columns", 0, aligning(kAlignRun)},
      {"produce", "rms_norm + mxfp8", 0.95 / 1.05,
       producing(ProducerKind::rms_norm, false, question("mxfp8"))},
      {"produce", "layer_norm + mxfp8", 0.95 / 1.05,
       producing(ProducerKind::layer_norm, false, question("mxfp8"))},
      {"produce", "rms_norm + fp8-1x128", 0.93 / 1.05,
       producing(ProducerKind::rms_norm, false, question("fp8-1x128"))},
      {"produce", "rms_norm + fp8-channel", 0.93 / 1.05,
       producing(ProducerKind::rms_norm, false, question("fp8-channel"))},
      {"produce", "layer_norm + fp8, delayed", 0,
       producing(ProducerKind::layer_norm, false, question("fp8", Copies::row, Given::inv_scale))},
      {"produce", "gelu + mxfp8", 0, producing(ProducerKind::gelu, false, question("mxfp8"))},
      {"produce", "gelu_tanh + mxfp8", 0,
       producing(ProducerKind::gelu_tanh, false, question("mxfp8"))},
      {"produce", "swiglu + mxfp8", 0, producing(ProducerKind::silu, true, question("mxfp8"))},
  };
}

}  // namespace octavo::bench
