#include <array>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/exec/place_internal.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"
#include "octavo/nn/linear/linear_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

void check_values(const View& view, std::string_view op, std::string_view name) {
  check_view(view, op, name);
  check(is_value(view.dtype), ErrorCode::wrong_type, op, name,
        " holds codes; expected float64, float32, float16 or bfloat16 values");
}

void check_quantizer(const View& values, const QuantizerSet& set, TensorRole role,
                     std::string_view op, std::string_view name) {
  const Hadamard rotated = set.of(role).scaling().hadamard;
  check(values.dtype != DType::f64 || (!rotated.rowwise && !rotated.columnwise),
        ErrorCode::wrong_type, op, name,
        " is float64; expected float32, float16 or bfloat16: under ", set.recipe().name(),
        " it goes through a Hadamard transform, which is done in float32; cast ", name,
        " to float32");
}

bool is_tensor_core_fp8(const Format& format) { return format == e4m3fn || format == e5m2; }

void check_accumulator(const LinearCall& call, const QuantizerSet& set, std::string_view op) {
  const Accumulator asked = accumulator_of(call.run, set.recipe());
  if (asked == Accumulator::f32 || asked == Accumulator::native) return;
  const std::string_view name = name_of(asked);
  check(call.x.dtype() != DType::f64 && call.weight.dtype() != DType::f64, ErrorCode::wrong_type,
        op, "got accumulator ", name,
        " with float64 tensors, which are summed in float64; cast them to float32");
  if (asked != Accumulator::hopper_fp8) return;
  for (const TensorRole role : {TensorRole::input, TensorRole::weight}) {
    const Format& format = set.of(role).scaling().format;
    check(is_tensor_core_fp8(format), ErrorCode::unsupported, op, "got accumulator ", name,
          ", which multiplies e4m3 and e5m2, and under ", set.recipe().name(), " the ",
          name_of(role), " is ", format_name(format), "; leave it float32");
  }
}

}  // namespace

Accumulator accumulator_of(const LinearRun& run, const Recipe& recipe) {
  return run.accumulator == Accumulator::native ? recipe.accumulator() : run.accumulator;
}

View as_matrix(const View& view, std::string_view op, std::string_view name) {
  const std::optional<View> collapsed = with_rows_collapsed(view);
  check(collapsed.has_value(), ErrorCode::invalid_argument, op, name,
        " has leading dimensions that are not one run of memory; expected rows at equal distances; "
        "copy it to dense memory");
  return *collapsed;
}

View transposed_view(View matrix) {
  std::swap(matrix.shape[0], matrix.shape[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

void check_parameters(const LinearWeight& weight, const Tensor& bias, std::string_view op) {
  check(weight.codes == nullptr || weight.made_with != nullptr, ErrorCode::invalid_argument, op,
        "the weight is codes; expected the recipe they were made for beside them");
  if (weight.codes == nullptr) check_values(weight.values.view(), op, "the weight");
  const Shape& shape = weight.shape();
  if (shape.rank() != 2 || shape[0] < 1 || shape[1] < 1)
    fail(ErrorCode::invalid_argument, op, "the weight has shape ", to_string(shape),
         "; expected [out_features, in_features], both at least 1");
  if (bias.view().data == nullptr) return;
  check_values(bias.view(), op, "the bias");
  if (bias.shape() != Shape{shape[0]})
    fail(ErrorCode::invalid_argument, op, "the bias has shape ", to_string(bias.shape()),
         "; expected [", shape[0], "], as many as out_features");
}

void check_forward(const LinearCall& call, std::string_view op) {
  check_parameters(call.weight, call.bias, op);
  check_values(call.x.view(), op, "x");
  const Shape& shape = call.x.shape();
  const std::int64_t in = call.weight.shape()[1];
  if (shape.rank() < 2 || shape[shape.rank() - 1] != in)
    fail(ErrorCode::invalid_argument, op, "x has shape ", to_string(shape), "; expected [..., ", in,
         "] of at least two dimensions: the weight has ", in, " in_features");
  std::vector<NamedView> views{{&call.x.view(), "x"}};
  const View& weight = call.weight.codes
                           ? (call.weight.codes->rowwise.exists() ? call.weight.codes->rowwise
                                                                  : call.weight.codes->columnwise)
                                 .codes.view()
                           : call.weight.values.view();
  views.push_back({&weight, "the weight"});
  if (call.bias.view().data != nullptr) views.push_back({&call.bias.view(), "the bias"});
  (void)common_device(views, op);
  check((!call.autocast.enabled && !call.autocast.calibrating) ||
            (call.quantizers != nullptr && call.autocast.recipe != nullptr),
        ErrorCode::invalid_argument, op, "a recipe holds; expected quantizers for it in the call");
}

void check_quantizers(const LinearCall& call, const QuantizerSet& set, std::string_view op) {
  check_accumulator(call, set, op);
  check_quantizer(call.x.view(), set, TensorRole::input, op, "x");
  if (call.weight.codes == nullptr)
    check_quantizer(call.weight.values.view(), set, TensorRole::weight, op, "the weight");
}

void check_cache(const LinearCall& call, std::string_view op) {
  if (call.weight.codes || call.cache == nullptr || !call.cache->codes ||
      call.is_first_microbatch != std::optional(false))
    return;
  const Shape &now = call.weight.shape(), &kept = call.cache->codes->shape;
  if (now != kept)
    fail(ErrorCode::invalid_argument, op, "the weight has shape ", to_string(now),
         ", and its codes that were kept from an earlier micro-batch have ", to_string(kept),
         "; say is_first_microbatch = true (or leave it out) after the weight was replaced");
}

void check_backward(const Tensor& dy, const LinearSaved& saved) {
  constexpr std::string_view kOp = "Linear";
  check(saved.is_filled(), ErrorCode::unsupported, kOp,
        "backward without a forward that was kept for it; call forward first, in training, and "
        "backward once for each");
  check_values(dy.view(), kOp, "dy");
  if (dy.shape() != saved.y_shape)
    fail(ErrorCode::invalid_argument, kOp, "dy has shape ", to_string(dy.shape()),
         "; expected that of y, ", to_string(saved.y_shape));
  if (saved.quantizers != nullptr && !saved.calibrating && (saved.needs.dx || saved.needs.dw))
    check_quantizer(dy.view(), *saved.quantizers, TensorRole::grad_output, kOp, "dy");
}

}  // namespace octavo
