// Data-oblivious check of quantize and dequantize under valgrind: values are hidden for quantize,
// codes and scales for dequantize. Not checked: the policies percentile and mse, which search;
// peers' ariths, which branch as their definition does; and the tensor's amax of NVFP4
// (quantize_job.h).
#include "checker.h"
#include "octavo/base/error.h"
#include "octavo/quant/quantize.h"
#include "quantize_job.h"

namespace octavo::oblivious {
namespace {

using Bytes = Checker::Bytes;

const Shape kShapes[] = {{7, 43}, {2, 301}, {33, 64}};

std::vector<Bytes> outputs_of(const QuantizedTensor& q) {
  std::vector<Bytes> out;
  for (const QuantizedCopy* copy : {&q.rowwise, &q.columnwise}) {
    if (!copy->exists()) continue;
    out.push_back(bytes_of(copy->codes));
    out.push_back(bytes_of(copy->scales));
  }
  return out;
}

void check_amax(Checker& checker, const Kernels& kernels, DType dtype, const Shape& shape) {
  const Tensor values = Tensor::values(shape, dtype);
  fill(bytes_of(values), 5);
  for (const AmaxOf of : {AmaxOf::all, AmaxOf::only_finite}) {
    float amax = 0;
    checker.judge(text(kernels.name, ": amax ", dtype_name(dtype), " ", to_string(shape)),
                  {bytes_of(values)}, {{reinterpret_cast<std::uint8_t*>(&amax), sizeof(amax)}},
                  [&] {
                    QuantizeSource source;
                    source.values = matrix_of(values.view());
                    kernels.amax({.threads = 1}, source, of, &amax);
                  });
  }
}

void check_quantize(Checker& checker, const Kernels& kernels, const Scaling& scaling, DType dtype,
                    const Shape& shape, const std::string& note) {
  const Tensor values = Tensor::values(shape, dtype);
  QuantizedTensor q = make_quantized(shape, dtype, scaling);
  const bool two_levels = scaling.scale.format == ScaleFormat::e4m3_f32;
  fill(bytes_of(values), 6);
  for (const bool counting : {false, true}) {
    Counts counts;
    const std::string what =
        text(kernels.name, ": quantize ", dtype_name(dtype), " ", to_string(shape), " -> ",
             describe(scaling), note, counting ? ", counted" : "");
    checker.judge(what, {bytes_of(values)}, outputs_of(q), [&] {
      if (two_levels) {
        QuantizeJob job = two_level_job(values.view(), q);
        *job.rowwise.tensor_scale = 0x1p-3F;
        if (counting) job.counts = &counts;
        kernels.quantize({.threads = 1}, job);
      } else {
        quantize_into(values.view(), q,
                      {.threads = 1, .counts = counting ? &counts : nullptr, .backend = &kernels});
      }
    });
    reveal(&counts, sizeof(counts));
  }
}

void check_dequantize(Checker& checker, const Kernels& kernels, const Scaling& scaling, DType dtype,
                      const Shape& shape) {
  const Tensor values = Tensor::values(shape, dtype);
  const QuantizedTensor q = make_quantized(shape, dtype, scaling);
  std::vector<Bytes> inputs{bytes_of(q.rowwise.codes), bytes_of(q.rowwise.scales)};
  if (scaling.scale.format == ScaleFormat::e4m3_f32)
    inputs.push_back(bytes_of(q.rowwise.tensor_scale));
  for (const Bytes input : inputs) fill(input, 7);
  const std::string what = text(kernels.name, ": dequantize ", to_string(shape), " ",
                                describe(scaling), " -> ", dtype_name(dtype));
  checker.judge(what, inputs, {bytes_of(values)},
                [&] { dequantize_into(q, values.view(), {.threads = 1, .backend = &kernels}); });
}

}  // namespace

void check_quantizing(Checker& checker, const Kernels& kernels) {
  if (kernels.quantize == nullptr || kernels.dequantize == nullptr) return;
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  for (const Shape& shape : kShapes) {
    for (const DType dtype : dtypes) {
      check_amax(checker, kernels, dtype, shape);
      for (const std::string& name : preset_names()) {
        Scaling scaling = preset(name);
        check_quantize(checker, kernels, scaling, dtype, shape, "");
        check_dequantize(checker, kernels, scaling, dtype, shape);
        if (name == "nvfp4") continue;  // the job above is for one copy
        scaling.columnwise = true;
        scaling.packed = false;
        check_quantize(checker, kernels, scaling, dtype, shape, ", both copies");
        scaling.columnwise = false;
        scaling.scale.non_finite = NonFinite::saturate;
        scaling.encode.nan_input = NanInput::zero;
        check_quantize(checker, kernels, scaling, dtype, shape, ", saturate");
      }
      for (const ScaleRule rule : {ScaleRule::floor, ScaleRule::ceil, ScaleRule::even}) {
        Scaling scaling = preset("mxfp8");
        scaling.scale.rule = rule;
        check_quantize(checker, kernels, scaling, dtype, shape, "");
      }
      for (const ScaleFormat format : {ScaleFormat::bf16, ScaleFormat::f16}) {
        Scaling scaling = preset("fp8-1x128");
        scaling.scale.format = format;
        check_quantize(checker, kernels, scaling, dtype, shape, "");
        check_dequantize(checker, kernels, scaling, dtype, shape);
      }
      Scaling scaling = preset("fp8-1x128");
      scaling.scale.arith = Arith::divide;
      check_quantize(checker, kernels, scaling, dtype, shape, "");
      scaling = preset("mxfp4");
      scaling.encode.rounding = Rounding::stochastic;
      check_quantize(checker, kernels, scaling, dtype, shape, ", stochastic");
    }
  }
}

}  // namespace octavo::oblivious
