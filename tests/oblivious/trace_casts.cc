// Cases of oblivious_trace: controls, casts with and without factors, quantizers.
#include <cstring>

#include "oblivious_control.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/format/parse_format.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/scaled_convert.h"
#include "octavo/round/policy_names.h"
#include "quantize_job.h"
#include "trace_cases.h"

namespace octavo::oblivious {
namespace {

constexpr DType kValueTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

}  // namespace

void TraceCases::add(const std::string& name, const std::function<void()>& run, bool oblivious) {
  cases_.push_back({name, oblivious, run});
}

void TraceCases::add_controls() {
  using Function = void (*)(std::span<const std::uint32_t>, std::uint8_t*);
  const auto add_one = [&](const char* name, Function function, bool oblivious) {
    add(
        name,
        [this, function] {
          const auto* words = reinterpret_cast<const std::uint32_t*>(buffers_.input.data());
          function({words, static_cast<std::size_t>(kTraceCount)}, buffers_.output.data());
        },
        oblivious);
  };
  add_one("control branch_on_value", &branch_on_value, false);
  add_one("control stop_at_value", &stop_at_value, false);
  add_one("control look_up_value", &look_up_value, false);
  add_one("control select_by_mask", &select_by_mask, true);
}

void TraceCases::add_encode(const Format& format, DType dtype, const EncodePolicy& policy) {
  add(text("encode ", dtype_name(dtype), " -> ", format_name(format), ", ",
           name_of(policy.rounding), ", ", name_of(policy.overflow)),
      [=, this] {
        encode(value_view(buffers_.input.data(), dtype, {kTraceCount}),
               code_view(buffers_.output.data(), format, {kTraceCount}), policy,
               {.threads = 1, .backend = &kernels_});
      });
}

// Factors are the caller's: one that f32 holds, one that it does not.
void TraceCases::add_scaled(const Format& format, DType dtype) {
  for (const double factor : {3.0, 0.3}) {
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::up})
      add(text("encode_scaled ", dtype_name(dtype), " -> ", format_name(format), ", ",
               name_of(rounding), ", factor ", factor),
          [=, this] {
            encode_scaled(value_view(buffers_.input.data(), dtype, {kTraceCount}),
                          code_view(buffers_.output.data(), format, {kTraceCount}),
                          {.value = factor}, {.rounding = rounding, .nan_input = NanInput::zero},
                          {.threads = 1, .backend = &kernels_});
          });
    for (const DecodeBy by : {DecodeBy::scale, DecodeBy::inv_scale})
      add(text("decode_scaled ", format_name(format), " -> ", dtype_name(dtype),
               by == DecodeBy::scale ? ", scale " : ", inv_scale ", factor),
          [=, this] {
            decode_scaled(code_view(buffers_.input.data(), format, {kTraceCount}),
                          value_view(buffers_.output.data(), dtype, {kTraceCount}),
                          {.value = factor}, by, {.threads = 1, .backend = &kernels_});
          });
  }
}

void TraceCases::add_casts() {
  for (const char* format_name : {"e4m3fn", "e5m2", "e2m1fn", "e8m0fnu", "e5m10"}) {
    const Format format = parse_format(format_name);
    for (const DType dtype : kValueTypes) {
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::up, Rounding::stochastic})
        add_encode(format, dtype, {.rounding = rounding, .nan_input = NanInput::zero});
      add_encode(format, dtype, {.overflow = Overflow::ieee, .nan_input = NanInput::max});
      add(text("decode ", format_name, " -> ", dtype_name(dtype)), [=, this] {
        decode(code_view(buffers_.input.data(), format, {kTraceCount}),
               value_view(buffers_.output.data(), dtype, {kTraceCount}),
               {.threads = 1, .backend = &kernels_});
      });
    }
  }
  // The last has steps so small that products are made in integers.
  for (const char* format_name : {"e4m3fn", "e5m2", "e3m4", "e0m7", "e4m4fnu", "e11m4"})
    for (const DType dtype : kValueTypes) add_scaled(parse_format(format_name), dtype);
}

// oblivious_quantize.cc and quantize_job.h say what is not checked.
void TraceCases::add_quantize(const char* name, DType dtype) {
  const Shape shape{2, 37};
  const Scaling scaling = preset(name);
  const auto q = std::make_shared<QuantizedTensor>(make_quantized(shape, dtype, scaling));
  const View values = value_view(buffers_.input.data(), dtype, shape);
  const bool two_levels = scaling.scale.format == ScaleFormat::e4m3_f32;
  if (two_levels) q->rowwise.tensor_scale.span<float>()[0] = 0x1p-3F;
  add(text("quantize ", dtype_name(dtype), " -> ", name), [=, this] {
    if (two_levels)
      kernels_.quantize({.threads = 1}, two_level_job(values, *q));
    else
      quantize_into(values, *q, {.threads = 1, .backend = &kernels_});
  });
  add(text("dequantize ", name, " -> ", dtype_name(dtype)), [=, this] {
    const std::uint8_t* from = buffers_.input.data();
    for (const Tensor* to : {&q->rowwise.codes, &q->rowwise.scales}) {
      std::memcpy(to->bytes().data(), from, to->bytes().size());
      from += to->bytes().size();
    }
    dequantize_into(*q, value_view(buffers_.output.data(), dtype, shape),
                    {.threads = 1, .backend = &kernels_});
  });
}

void TraceCases::add_quantizing() {
  // A policy that searches: a control, which must differ.
  const Shape shape{2, 37};
  Scaling searching = preset("mxfp8");
  searching.policy = AmaxPolicy::mse;
  const auto found =
      std::make_shared<QuantizedTensor>(make_quantized(shape, DType::f32, searching));
  add(
      "control quantize by mse",
      [=, this] {
        quantize_into(value_view(buffers_.input.data(), DType::f32, shape), *found,
                      {.threads = 1, .backend = &kernels_});
      },
      false);
  for (const char* name : {"mxfp8", "mxfp6", "mxfp4", "mxint8", "fp8", "fp8-channel", "fp8-1x128",
                           "int8-channel", "nvfp4"})
    for (const DType dtype : {DType::f32, DType::bf16}) add_quantize(name, dtype);
}

}  // namespace octavo::oblivious
