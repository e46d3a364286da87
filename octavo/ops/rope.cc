#include "octavo/ops/rope.h"

#include <array>
#include <cmath>

#include "octavo/backend/rope_job.h"
#include "octavo/base/error.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "rope";
// Beyond it f32 does not hold every position.
constexpr std::int64_t kMostPositions = std::int64_t{1} << 24;

void check_values(const View& x, std::string_view what) {
  check_view(x, kOp, what);
  check(x.dtype == DType::f32 || x.dtype == DType::bf16, ErrorCode::wrong_type, kOp, what, " is ",
        is_value(x.dtype) ? dtype_name(x.dtype) : "codes", "; expected float32 or bfloat16");
  const int rank = x.shape.rank();
  if (rank != 3 && rank != 4)
    fail(ErrorCode::invalid_argument, kOp, what, " has shape ", to_string(x.shape),
         "; expected [tokens, heads, size] or [batch, tokens, heads, size]");
  check(x.shape[rank - 1] <= 1 || x.strides[rank - 1] == element_bytes(x.dtype),
        ErrorCode::invalid_argument, kOp, "the elements of a head of ", what,
        " are not contiguous; copy it");
}

RopeOperand operand_of(const View& x) {
  const int rank = x.shape.rank();
  return {.data = x.data,
          .batch_stride = rank == 4 ? x.strides[0] : 0,
          .token_stride = x.strides[rank - 3],
          .head_stride = x.strides[rank - 2]};
}

bool is_in_place(const View& x, const View& out) {
  return x.data == out.data && x.strides == out.strides;
}

void check_rope(const Rope& rope, const View& x) {
  const View& frequencies = rope.inverse_frequencies;
  const std::int64_t size = x.shape[x.shape.rank() - 1], tokens = x.shape[x.shape.rank() - 3];
  check_view(frequencies, kOp, "the inverse frequencies");
  check(frequencies.dtype == DType::f32 && frequencies.shape.rank() == 1 && is_dense(frequencies),
        ErrorCode::invalid_argument, kOp, "the inverse frequencies have shape ",
        to_string(frequencies.shape), " of ",
        is_value(frequencies.dtype) ? dtype_name(frequencies.dtype) : "codes",
        "; expected float32, one for each pair, dense");
  check(frequencies.shape[0] <= size / 2, ErrorCode::invalid_argument, kOp, "got ",
        frequencies.shape[0], " inverse frequencies for heads of ", size,
        " elements; expected at most one for two");
  check(std::isfinite(rope.factor), ErrorCode::invalid_argument, kOp, "got the factor ",
        rope.factor, "; expected a finite number");
  check(rope.first_position >= 0 && rope.first_position <= kMostPositions &&
            tokens <= kMostPositions - rope.first_position,
        ErrorCode::invalid_argument, kOp, "got ", tokens, " tokens from position ",
        rope.first_position, " on; expected positions from 0 to ", kMostPositions);
}

}  // namespace

void rope_into(const View& x, const Rope& rope, const View& out, const RopeOptions& options) {
  check_values(x, "the input");
  check_values(out, "the output");
  check(!out.read_only, ErrorCode::invalid_argument, kOp, "the output is read-only");
  if (out.shape != x.shape || out.dtype != x.dtype)
    fail(ErrorCode::invalid_argument, kOp, "the output is ", dtype_name(out.dtype), " of shape ",
         to_string(out.shape), "; expected ", dtype_name(x.dtype), " of ", to_string(x.shape));
  check_rope(rope, x);
  const std::int64_t elements = element_count(x.shape);
  check(elements == 0 || is_in_place(x, out) || !bytes_overlap(x, out), ErrorCode::invalid_argument,
        kOp,
        "the output overlaps the input and is not the same; give the input itself or other memory");
  const std::array<NamedView, 3> views{{{&x, "the input"},
                                        {&out, "the output"},
                                        {&rope.inverse_frequencies, "the inverse frequencies"}}};
  const Exec exec = make_exec_on(views, elements, options, kOp);
  const auto entry = offered(exec, options.backend, &Kernels::rope, kOp);
  if (elements == 0) return;
  const int rank = x.shape.rank();
  entry(exec, {.x = operand_of(x),
               .out = operand_of(out),
               .dtype = x.dtype,
               .batches = rank == 4 ? x.shape[0] : 1,
               .tokens = x.shape[rank - 3],
               .heads = x.shape[rank - 2],
               .size = x.shape[rank - 1],
               .inverse_frequencies = static_cast<const float*>(rope.inverse_frequencies.data),
               .pairs = rope.inverse_frequencies.shape[0],
               .first_position = rope.first_position,
               .factor = static_cast<float>(rope.factor)});
}

Tensor rope(const View& x, const Rope& rope, const RopeOptions& options) {
  check_values(x, "the input");
  Tensor out = values_on(x.device, x.shape, x.dtype, options.stream);
  rope_into(x, rope, out.view(), options);
  return out;
}

}  // namespace octavo
