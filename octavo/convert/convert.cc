// Checks all arguments, then calls the kernels on matrices.
#include "octavo/convert/convert.h"

#include <array>

#include "octavo/backend/kernels.h"
#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert_checks_internal.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/format/parse_format.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {

void check_same_shape(const View& from, const View& to, std::string_view op) {
  if (from.shape != to.shape) {
    fail(ErrorCode::invalid_argument, op, "the input has shape ", to_string(from.shape),
         " and the output ", to_string(to.shape), "; they must be the same");
  }
}

void check_policy(const EncodePolicy& policy, std::string_view op) {
  check(policy.stochastic_bits >= 1 && policy.stochastic_bits <= kMaxStochasticBits,
        ErrorCode::invalid_argument, op, "got stochastic_bits = ", policy.stochastic_bits,
        "; expected 1 to ", kMaxStochasticBits);
}

void refuse_nan(const Exec& exec, const View& values, const View& codes, const Kernels* backend,
                std::string_view op) {
  check_may_wait(
      exec, op,
      "the input cannot be checked for NaN, which a format without NaN needs; say what NaN becomes "
      "(nan: zero or max)");
  const auto count_entry = offered(exec, backend, &Kernels::count_nan, "count_nan");
  std::int64_t nan = 0;
  for_each_matrix(values, codes, [&](const Matrix& from, const Matrix&, std::uint64_t) {
    nan += count_entry(exec, from);
  });
  if (nan > 0) {
    fail(ErrorCode::invalid_argument, op, "the input has ", nan, " NaN, and ",
         format_name(codes.format),
         " cannot hold NaN; say what NaN becomes (nan: zero or max) or remove it");
  }
}

namespace {

// Views may share memory only to convert in place, front to back: every element is then read before
// anything is written over it.
void check_overlap(const View& from, const View& to, std::string_view op) {
  if (element_count(from.shape) == 0 || !bytes_overlap(from, to)) return;
  const bool shrinks = element_bytes(to.dtype, to.format) <= element_bytes(from.dtype, from.format);
  check(from.data == to.data && is_dense(from) && !from.packed && !to.packed && shrinks,
        ErrorCode::invalid_argument, op,
        "input and output overlap; give separate memory, or for a conversion in place the same "
        "start, contiguous and "
        "unpacked views, and output elements no larger than the input's");
}

Exec exec_for(const View& from, const View& to, const ConvertOptions& options,
              std::string_view op) {
  const std::array<NamedView, 2> views{{{&from, "the input"}, {&to, "the output"}}};
  return make_exec_on(views, element_count(from.shape), options, op);
}

}  // namespace

void encode(const View& values, const View& codes, const EncodePolicy& policy,
            const ConvertOptions& options) {
  constexpr std::string_view kOp = "encode";
  check(codes.dtype == DType::code, ErrorCode::wrong_type, kOp, "the output holds ",
        dtype_name(codes.dtype), "; expected codes of a format; use decode for values");
  check_view(values, kOp, "the input");
  check_view(codes, kOp, "the output");
  check_same_shape(values, codes, kOp);
  check_output(codes, kOp);
  check_overlap(values, codes, kOp);
  check_policy(policy, kOp);
  const Exec exec = exec_for(values, codes, options, kOp);
  check_beside(exec, options.counts, alignof(Counts), kOp, "counts");
  const auto encode_entry = offered(exec, options.backend, &Kernels::encode, kOp);
  if (must_refuse_nan(codes.format, policy)) refuse_nan(exec, values, codes, options.backend, kOp);
  if (options.counts != nullptr) clear_memory(exec, options.counts, sizeof(Counts));
  for_each_matrix(values, codes, [&](const Matrix& from, const Matrix& to, std::uint64_t first) {
    EncodePolicy part = policy;
    part.first_index += first;
    encode_entry(exec, from, to, part, options.counts);
  });
}

void decode(const View& codes, const View& values, const ConvertOptions& options) {
  constexpr std::string_view kOp = "decode";
  check(codes.dtype == DType::code, ErrorCode::wrong_type, kOp, "the input holds ",
        dtype_name(codes.dtype), "; expected codes of a format");
  check(is_value(values.dtype), ErrorCode::wrong_type, kOp,
        "the output holds codes; expected float64, float32, float16 or bfloat16; use encode for "
        "codes to codes");
  check_view(codes, kOp, "the input");
  check_view(values, kOp, "the output");
  check_same_shape(codes, values, kOp);
  check_output(values, kOp);
  check_overlap(codes, values, kOp);
  const Exec exec = exec_for(codes, values, options, kOp);
  const auto decode_entry = offered(exec, options.backend, &Kernels::decode, kOp);
  for_each_matrix(codes, values, [&](const Matrix& from, const Matrix& to, std::uint64_t) {
    decode_entry(exec, from, to);
  });
}

Tensor encode(const View& values, const Format& format, const EncodePolicy& policy,
              const ConvertOptions& options, bool packed) {
  if (const auto problem = format_problem(format)) {
    fail(ErrorCode::invalid_argument, "encode", "that format cannot be: ", *problem);
  }
  Tensor codes = codes_on(values.device, values.shape, format, packed, options.stream);
  encode(values, codes.view(), policy, options);
  return codes;
}

Tensor decode(const View& codes, DType dtype, const ConvertOptions& options) {
  Tensor values = values_on(codes.device, codes.shape, dtype, options.stream);
  decode(codes, values.view(), options);
  return values;
}

void encode(std::span<const float> values, std::span<std::uint8_t> codes, const Format& format,
            const EncodePolicy& policy, const ConvertOptions& options) {
  encode(view_of(values), view_of(codes, format), policy, options);
}
void encode(std::span<const float> values, std::span<std::uint16_t> codes, const Format& format,
            const EncodePolicy& policy, const ConvertOptions& options) {
  encode(view_of(values), view_of(codes, format), policy, options);
}
void decode(std::span<const std::uint8_t> codes, const Format& format, std::span<float> values,
            const ConvertOptions& options) {
  decode(view_of(codes, format), view_of(values), options);
}
void decode(std::span<const std::uint16_t> codes, const Format& format, std::span<float> values,
            const ConvertOptions& options) {
  decode(view_of(codes, format), view_of(values), options);
}

void fp8_encode(std::span<const float> values, std::span<std::uint8_t> codes) {
  encode(values, codes, e4m3fn);
}
void fp8_decode(std::span<const std::uint8_t> codes, std::span<float> values) {
  decode(codes, e4m3fn, values);
}

}  // namespace octavo
