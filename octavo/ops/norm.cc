#include "octavo/ops/norm.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/exec/place_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

void check_input(const View& x, double epsilon, std::string_view op) {
  check_view(x, op, "the input");
  check(
      is_value(x.dtype), ErrorCode::wrong_type, op,
      "the input holds codes; expected float64, float32, float16 or bfloat16; dequantize it first");
  check(x.shape.rank() > 0, ErrorCode::invalid_argument, op,
        "the input is a single number; expected at least one dimension to norm along");
  check(epsilon >= 0.0 && std::isfinite(epsilon), ErrorCode::invalid_argument, op,
        "got epsilon = ", epsilon, "; expected a finite number that is not negative");
}

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

// Checks that all arguments are on the device of x.
void check_together(const View& x, std::initializer_list<NamedView> others, std::string_view op) {
  std::vector<NamedView> views{{&x, "the input"}};
  for (const NamedView& other : others)
    if (is_given(*other.view)) views.push_back(other);
  (void)common_device(views, op);
}

// One number for each column.
Matrix along_row(const View& view, const View& x, std::string_view op, std::string_view what) {
  if (!is_given(view)) return {};
  check_view(view, op, what);
  check(is_value(view.dtype), ErrorCode::wrong_type, op, what,
        " holds codes; expected float64, float32, float16 or bfloat16");
  const std::int64_t cols = x.shape[x.shape.rank() - 1];
  if (view.shape != Shape{cols})
    fail(ErrorCode::invalid_argument, op, what, " has shape ", to_string(view.shape), "; expected ",
         to_string(Shape{cols}), ", as long as the last dimension of the input");
  return {.data = view.data,
          .dtype = view.dtype,
          .rows = 1,
          .cols = cols,
          .row_pitch = 0,
          .col_stride = view.strides[0]};
}

// Where one f32 for each row goes.
float* for_rows(const View& view, const View& x, std::string_view op, std::string_view what) {
  if (!is_given(view)) return nullptr;
  check_view(view, op, what);
  check_output(view, op);
  check(view.dtype == DType::f32, ErrorCode::wrong_type, op, what, " is ",
        is_value(view.dtype) ? dtype_name(view.dtype) : "codes", "; expected float32");
  check(reinterpret_cast<std::uintptr_t>(view.data) % alignof(float) == 0,
        ErrorCode::invalid_argument, op, what, " is not aligned to ", alignof(float), " bytes");
  check(x.shape[x.shape.rank() - 1] > 0, ErrorCode::invalid_argument, op, "rows of no elements (",
        to_string(x.shape), ") have no ", what);
  std::int64_t rows = 1;
  for (int i = 0; i < x.shape.rank() - 1; ++i) rows *= x.shape[i];
  if (element_count(view.shape) != rows)
    fail(ErrorCode::invalid_argument, op, what, " has shape ", to_string(view.shape), "; expected ",
         rows, rows == 1 ? " element" : " elements", ", one for each row of the input");
  return static_cast<float*>(view.data);
}

}  // namespace

Produced produced(const View& x, const LayerNorm& norm) {
  constexpr std::string_view kOp = "layer_norm";
  check_input(x, norm.epsilon, kOp);
  Produced made{.x = x,
                .shape = x.shape,
                .producer = {.kind = ProducerKind::layer_norm,
                             .weight = along_row(norm.weight, x, kOp, "the weight"),
                             .bias = along_row(norm.bias, x, kOp, "the bias"),
                             .zero_centred = norm.zero_centred,
                             .epsilon = norm.epsilon,
                             .mean = for_rows(norm.mean, x, kOp, "mean"),
                             .inv_std = for_rows(norm.inv_std, x, kOp, "inv_std")}};
  check_together(x,
                 {{&norm.weight, "the weight"},
                  {&norm.bias, "the bias"},
                  {&norm.mean, "mean"},
                  {&norm.inv_std, "inv_std"}},
                 kOp);
  return made;
}

Produced produced(const View& x, const RmsNorm& norm) {
  constexpr std::string_view kOp = "rms_norm";
  check_input(x, norm.epsilon, kOp);
  Produced made{.x = x,
                .shape = x.shape,
                .producer = {.kind = ProducerKind::rms_norm,
                             .weight = along_row(norm.weight, x, kOp, "the weight"),
                             .zero_centred = norm.zero_centred,
                             .epsilon = norm.epsilon,
                             .inv_std = for_rows(norm.inv_rms, x, kOp, "inv_rms")}};
  check_together(x, {{&norm.weight, "the weight"}, {&norm.inv_rms, "inv_rms"}}, kOp);
  return made;
}

Tensor layer_norm(const View& x, const LayerNorm& norm, const ProduceOptions& options) {
  return produce(produced(x, norm), options);
}

Tensor rms_norm(const View& x, const RmsNorm& norm, const ProduceOptions& options) {
  return produce(produced(x, norm), options);
}

}  // namespace octavo
