#include "octavo/quant/quantizer.h"

#include <array>

#include "octavo/base/error.h"
#include "octavo/exec/place_internal.h"
#include "octavo/scale/scale_parts.h"

namespace octavo {
namespace {

constexpr std::int64_t kBlock = 128, kNvBlock = 16;

Tile block_tile(std::int64_t size, bool two_dimensional) {
  return {two_dimensional ? size : 1, size};
}

Scaling te_scaling(const Format& format, const Tile& tile, ScaleFormat scale, bool power_of_two,
                   bool rowwise, bool columnwise) {
  Scaling scaling{.format = format, .tile = tile, .rowwise = rowwise, .columnwise = columnwise};
  // Under Arith::te a power of two is the reciprocal rounded down, which is what rceil stands for.
  scaling.scale = {.format = scale,
                   .rule = power_of_two ? ScaleRule::rceil : ScaleRule::f32,
                   .arith = Arith::te};
  scaling.encode.nan_code = NanCode::positive_ones;  // as CUDA's casts write it
  return scaling;
}

Scaling with_min_amax(Scaling scaling, float min_amax) {
  scaling.scale.min_amax = min_amax;
  return scaling;
}

Scaling block_scaling(const Float8BlockOptions& options) {
  check(options.block_dims == 1 || options.block_dims == 2, ErrorCode::invalid_argument,
        "Float8BlockQuantizer", "got block_dims = ", options.block_dims,
        "; expected 1 (1 x 128) or 2 (128 x 128)");
  return with_min_amax(
      te_scaling(options.format, block_tile(kBlock, options.block_dims == 2), ScaleFormat::f32,
                 options.power_of_two, options.rowwise, options.columnwise),
      options.min_amax);
}

Scaling nvfp4_scaling(const NVFP4Options& options) {
  check(!options.with_rht || !options.two_dimensional, ErrorCode::invalid_argument,
        "NVFP4Quantizer",
        "got with_rht and two_dimensional; tiles of 16 x 16 are one set of scales for both copies, "
        "and the transform makes the copies differ: leave out one");
  Scaling scaling = te_scaling(e2m1fn, block_tile(kNvBlock, options.two_dimensional),
                               ScaleFormat::e4m3_f32, false, options.rowwise, options.columnwise);
  scaling.encode.nan_input = NanInput::max;
  if (options.with_rht) scaling.hadamard = {.columnwise = true, .signs = options.rht_signs};
  if (options.stochastic_rounding) {
    scaling.encode.rounding = Rounding::stochastic;
    scaling.encode.seed = options.seed;
  }
  return scaling;
}

float* one_float(const View& view, std::string_view what, bool written) {
  constexpr std::string_view kOp = "Float8Quantizer";
  check(view.data != nullptr, ErrorCode::invalid_argument, kOp, what,
        " has no memory (null data); give one float32 that outlives the quantizer");
  check(view.dtype == DType::f32, ErrorCode::wrong_type, kOp, what, " is ",
        view.dtype == DType::code ? "codes" : dtype_name(view.dtype), "; expected float32");
  if (element_count(view.shape) != 1)
    fail(ErrorCode::invalid_argument, kOp, what, " has shape ", to_string(view.shape),
         "; expected one element; give each tensor's quantizer its own");
  check(reinterpret_cast<std::uintptr_t>(view.data) % alignof(float) == 0,
        ErrorCode::invalid_argument, kOp, what, " is not aligned to ", alignof(float), " bytes");
  check(!written || !view.read_only, ErrorCode::invalid_argument, kOp, what,
        " is read-only; give memory that may be written");
  return static_cast<float*>(view.data);
}

}  // namespace

Quantizer::Quantizer(const Scaling& scaling) : scaling_(scaling) { check_scaling(scaling); }

void Quantizer::set_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const bool row = rowwise.value_or(scaling_.rowwise),
             column = columnwise.value_or(scaling_.columnwise);
  check(row || column, ErrorCode::invalid_argument, name(),
        "got a usage of neither copy; expected rowwise or columnwise or both");
  scaling_.rowwise = row;
  scaling_.columnwise = column;
}

QuantizedTensor Quantizer::make_empty(const Shape& shape, DType source, Device device,
                                      void* stream) const {
  return make_quantized(shape, source, scaling_, device, stream);
}

QuantizedTensor Quantizer::quantize(const View& values, const QuantizeOptions& options) {
  QuantizedTensor out = make_empty(values.shape, values.dtype, values.device, options.stream);
  fill(values, out, options);
  return out;
}

void Quantizer::quantize_into(const View& values, QuantizedTensor& out,
                              const QuantizeOptions& options) {
  Scaling theirs = out.scaling;
  theirs.encode.seed = scaling_.encode.seed;  // a new step's draws, into the same memory
  if (theirs != scaling_)
    fail(ErrorCode::invalid_argument, name(), "the result is for (", describe(out.scaling),
         "); expected (", describe(scaling_), "); make one with make_empty");
  out.scaling = scaling_;
  fill(values, out, options);
}

Tensor Quantizer::dequantize(const QuantizedTensor& from, DType dtype,
                             const QuantizeOptions& options) const {
  return octavo::dequantize(from, dtype, options);
}

void Quantizer::calibrate(const View& /*values*/, const QuantizeOptions& /*options*/) {}

void Quantizer::fill(const View& values, QuantizedTensor& out, const QuantizeOptions& options) {
  octavo::quantize_into(values, out, options);
}

Float8Quantizer::Float8Quantizer(const Float8Options& options)
    : Quantizer(te_scaling(options.format, {0, 0}, ScaleFormat::f32, false, options.rowwise,
                           options.columnwise)),
      inv_scale_(one_float(options.inv_scale, "inv_scale", false)),
      amax_(one_float(options.amax, "amax", true)),
      device_(options.inv_scale.device) {
  const std::array<NamedView, 2> state{
      {{&options.inv_scale, "inv_scale"}, {&options.amax, "amax"}}};
  (void)common_device(state, "Float8Quantizer");
}

void Float8Quantizer::check_device(const View& values) const {
  if (values.device != device_)
    fail(ErrorCode::invalid_argument, name(), "the input is on ", to_string(values.device),
         " and inv_scale and amax on ", to_string(device_), "; copy one to the other's device");
}

void Float8Quantizer::fill(const View& values, QuantizedTensor& out,
                           const QuantizeOptions& options) {
  check_device(values);
  // Not checked on a device: that would synchronize.
  if (device_.kind == DeviceKind::cpu)
    check(*inv_scale_ > 0.0F && is_finite(*inv_scale_), ErrorCode::invalid_argument, name(),
          "inv_scale is ", *inv_scale_, "; expected a positive, finite number; reset it to 1");
  QuantizeOptions given = options;
  given.given_inv_scale = inv_scale_;
  if (options.amax == nullptr && gathers_) {
    given.amax = amax_;
    given.raise_amax = true;
  }
  octavo::quantize_into(values, out, given);
  if (options.amax == nullptr || !gathers_) return;
  // The caller wants this tensor's amax apart: what is gathered is raised by it afterwards.
  View found = value_view(options.amax, DType::f32, {1});
  found.device = device_;
  QuantizeOptions rest{.backend = options.backend, .stream = options.stream};
  raise_amax(found, amax_, rest);
}

void Float8Quantizer::calibrate(const View& values, const QuantizeOptions& options) {
  check_device(values);
  raise_amax(values, amax_, options, amax_of(scaling_.scale));
}

Float8CurrentScalingQuantizer::Float8CurrentScalingQuantizer(
    const Float8CurrentScalingOptions& options)
    : Quantizer(with_min_amax(te_scaling(options.format, {0, 0}, ScaleFormat::f32,
                                         options.power_of_two, options.rowwise, options.columnwise),
                              options.min_amax)),
      reduce_amax_(options.reduce_amax) {}

void Float8CurrentScalingQuantizer::fill(const View& values, QuantizedTensor& out,
                                         const QuantizeOptions& options) {
  if (!reduce_amax_) return octavo::quantize_into(values, out, options);
  // The callback runs on the host: on a device this synchronizes.
  const float shared = reduce_amax_(amax(values, options, amax_of(scaling_.scale)));
  check(shared >= 0.0F, ErrorCode::invalid_argument, name(), "reduce_amax gave ", shared,
        "; expected the largest of the magnitudes that the processes have");
  Exec exec{.device = values.device, .stream = options.stream, .workspace = options.workspace};
  Scratch scratch(exec);
  float* there = scratch.number();
  copy_and_wait(exec, there, &shared, sizeof shared);
  QuantizeOptions given = options;
  given.given_amax = there;
  given.workspace = exec.workspace;
  octavo::quantize_into(values, out, given);
}

Float8BlockQuantizer::Float8BlockQuantizer(const Float8BlockOptions& options)
    : Quantizer(block_scaling(options)) {}

MXFP8Quantizer::MXFP8Quantizer(const MXFP8Options& options)
    : Quantizer(te_scaling(options.format, block_tile(kMxBlock, options.two_dimensional),
                           ScaleFormat::e8m0, true, options.rowwise, options.columnwise)) {}

NVFP4Quantizer::NVFP4Quantizer(const NVFP4Options& options) : Quantizer(nvfp4_scaling(options)) {}

}  // namespace octavo
