// Checks all arguments, broadcasts factors, then calls the kernels on matrices.
#include "octavo/quant/scaled_convert.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert_checks_internal.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/place_internal.h"
#include "octavo/format/decode.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

void check_factor(double factor, std::string_view op, std::string_view what) {
  check(factor > 0.0 && std::isfinite(factor), ErrorCode::invalid_argument, op, "got ", what, " = ",
        factor, "; expected a positive, finite number");
}

double number_at(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  const auto* from =
      static_cast<const std::byte*>(matrix.data) + row * matrix.row_pitch + col * matrix.col_stride;
  if (matrix.dtype == DType::f64) {
    double value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  float value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename Visit>
void for_each_number(View numbers, Visit&& visit) {
  for (int i = 0; i < numbers.shape.rank(); ++i)  // what repeats is visited once
    if (numbers.strides[i] == 0 && numbers.shape[i] > 1) numbers.shape[i] = 1;
  for_each_matrix(numbers, numbers, [&](const Matrix& matrix, const Matrix&, std::uint64_t) {
    for (std::int64_t row = 0; row < matrix.rows; ++row)
      for (std::int64_t col = 0; col < matrix.cols; ++col) visit(number_at(matrix, row, col));
  });
}

// The factors as a view of this shape: strides of 0 where they repeat.
View broadcast(const View& each, const Shape& shape, std::string_view op, std::string_view what) {
  const int rank = shape.rank(), missing = rank - each.shape.rank();
  View all = each;
  all.shape = shape;
  all.strides = shape;  // of the same rank
  bool fits = missing >= 0;
  for (int i = 0; fits && i < rank; ++i) {
    const std::int64_t size = i < missing ? 1 : each.shape[i - missing];
    fits = size == 1 || size == shape[i];
    all.strides[i] = size == 1 ? 0 : each.strides[i - missing];
  }
  if (!fits)
    fail(ErrorCode::invalid_argument, op, what, " has shape ", to_string(each.shape),
         ", which does not broadcast to ", to_string(shape),
         "; give one number, or for rows of the last dimension one for each: [..., 1]");
  return all;
}

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

// A checked call: where it runs, and its factors.
struct Call {
  Exec exec;
  View each{};
  bool has_array = false;
};

Call checked_call(const View& from, const View& to, const Factor* factor,
                  const ConvertOptions& options, std::string_view op, std::string_view what) {
  check_view(from, op, "the input");
  check_view(to, op, "the output");
  check_same_shape(from, to, op);
  check_output(to, op);
  check(element_count(from.shape) == 0 || !bytes_overlap(from, to), ErrorCode::invalid_argument, op,
        "input and output overlap; give separate memory");
  Call call;
  std::vector<NamedView> views{{&from, "the input"}, {&to, "the output"}};
  if (factor != nullptr && is_given(factor->each)) {
    const View& each = factor->each;
    check(each.dtype == DType::f32 || each.dtype == DType::f64, ErrorCode::wrong_type, op, what,
          " is of ", dtype_name(each.dtype), "; expected float32 or float64");
    check_view(each, op, what);
    call.each = broadcast(each, from.shape, op, what);
    call.has_array = true;
    views.push_back({&each, what});
  }
  call.exec = make_exec_on(views, element_count(from.shape), options, op);
  if (factor == nullptr) return call;
  if (!call.has_array) check_factor(factor->value, op, what);
  if (call.has_array && call.exec.device.kind == DeviceKind::cpu)
    for_each_number(factor->each, [&](double number) { check_factor(number, op, what); });
  return call;
}

void run_encode(const Call& call, const View& values, const View& codes, Factors factors,
                const EncodePolicy& policy, const ConvertOptions& options, std::string_view op) {
  const auto entry = offered(call.exec, options.backend, &Kernels::encode_scaled, op);
  if (options.counts != nullptr) clear_memory(call.exec, options.counts, sizeof(Counts));
  for_each_matrix_beside(
      values, codes, call.has_array ? &call.each : nullptr,
      [&](const Matrix& from, const Matrix& to, const Matrix& each, std::uint64_t first) {
        factors.each = each;
        EncodePolicy part = policy;
        part.first_index += first;
        entry(call.exec, from, to, factors, part, options.counts);
      });
}

void check_codes(const View& codes, std::string_view op, std::string_view which) {
  check(codes.dtype == DType::code, ErrorCode::wrong_type, op, "the ", which, " holds ",
        dtype_name(codes.dtype), "; expected codes of a format");
}

void check_encode(const Call& call, const View& values, const View& codes,
                  const EncodePolicy& policy, const ConvertOptions& options, std::string_view op) {
  check_policy(policy, op);
  check_beside(call.exec, options.counts, alignof(Counts), op, "counts");
  if (must_refuse_nan(codes.format, policy))
    refuse_nan(call.exec, values, codes, options.backend, op);
}

// The largest finite magnitude of f64, which f32 need not hold.
double finite_amax(const View& values) {
  double amax = 0;
  for_each_number(values, [&](double value) {
    const double magnitude = std::fabs(value);
    if (std::isfinite(magnitude) && magnitude > amax) amax = magnitude;
  });
  return amax;
}

}  // namespace

void encode_scaled(const View& values, const View& codes, const Factor& inv_scale,
                   const EncodePolicy& policy, const ConvertOptions& options) {
  constexpr std::string_view kOp = "encode_scaled";
  check_codes(codes, kOp, "output");
  const Call call = checked_call(values, codes, &inv_scale, options, kOp, "inv_scale");
  check_encode(call, values, codes, policy, options, kOp);
  run_encode(call, values, codes, {.value = inv_scale.value}, policy, options, kOp);
}

void encode_dynamic(const View& values, const View& codes, DynamicRule rule, double* inv_scale,
                    const EncodePolicy& policy, const ConvertOptions& options) {
  constexpr std::string_view kOp = "encode_dynamic";
  check_codes(codes, kOp, "output");
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the input holds codes; expected float64, float32, float16 or bfloat16; decode them first");
  check(inv_scale != nullptr, ErrorCode::invalid_argument, kOp,
        "got no memory for inv_scale, without which codes mean nothing; give one float64");
  Call call = checked_call(values, codes, nullptr, options, kOp, "inv_scale");
  check_beside(call.exec, inv_scale, alignof(double), kOp, "inv_scale");
  check_encode(call, values, codes, policy, options, kOp);
  const double largest = max_value(codes.format);
  if (call.exec.device.kind == DeviceKind::cpu && values.dtype == DType::f64) {
    *inv_scale = dynamic_factor(finite_amax(values), largest, rule);
    return run_encode(call, values, codes, {.value = *inv_scale}, policy, options, kOp);
  }
  const auto entry = offered(call.exec, options.backend, &Kernels::amax, kOp);
  Scratch scratch(call.exec);
  float* amax = scratch.number();
  for_each_matrix(values, codes, [&](const Matrix& from, const Matrix&, std::uint64_t) {
    entry(call.exec, {.values = from}, AmaxOf::only_finite, amax);
  });
  if (element_count(values.shape) == 0 && call.exec.device.kind == DeviceKind::cpu) *inv_scale = 1;
  run_encode(call, values, codes, {.amax = amax, .rule = rule, .made = inv_scale}, policy, options,
             kOp);
}

void decode_scaled(const View& codes, const View& values, const Factor& factor, DecodeBy by,
                   const ConvertOptions& options) {
  constexpr std::string_view kOp = "decode_scaled";
  check_codes(codes, kOp, "input");
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the output holds codes; expected float64, float32, float16 or bfloat16");
  const bool divide = by == DecodeBy::inv_scale;
  const Call call =
      checked_call(codes, values, &factor, options, kOp, divide ? "inv_scale" : "scale");
  const auto entry = offered(call.exec, options.backend, &Kernels::decode_scaled, kOp);
  for_each_matrix_beside(
      codes, values, call.has_array ? &call.each : nullptr,
      [&](const Matrix& from, const Matrix& to, const Matrix& each, std::uint64_t) {
        entry(call.exec, from, to, {.value = factor.value, .each = each, .divide = divide});
      });
}

DynamicRule parse_dynamic_rule(std::string_view name) {
  if (name == "power_of_two") return DynamicRule::power_of_two;
  if (name == "value") return DynamicRule::value;
  fail(ErrorCode::invalid_argument, "dynamic rule", "got \"", shown(name),
       "\"; expected power_of_two or value");
}

}  // namespace octavo
