#include "octavo/ops/gemm.h"

#include <array>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/ops/gemm_run_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "gemm";

Shape shape_of(const OperandStack& a, const OperandStack& b) {
  if (a.depth() != b.depth())
    fail(ErrorCode::invalid_argument, kOp, "A has shape ", to_string(a.elements().shape),
         " and B has shape ", to_string(b.elements().shape), ": K is ", a.depth(), " in A and ",
         b.depth(), " in B; the product is [M, K] x [N, K]^T, so both end with the same K",
         a.depth() == b.rows() ? " (B looks like [K, N]: give its transpose)" : "");
  const Shape a_lead = a.lead(), b_lead = b.lead();
  if (a_lead != b_lead && a_lead.rank() > 0 && b_lead.rank() > 0)
    fail(ErrorCode::invalid_argument, kOp, "A is a batch of ", to_string(a_lead),
         " and B is a batch of ", to_string(b_lead),
         "; expected the same leading dimensions, or one operand without any");
  const Shape& lead = a_lead.rank() > 0 ? a_lead : b_lead;
  std::vector<std::int64_t> sizes(lead.sizes().begin(), lead.sizes().end());
  sizes.push_back(a.rows());
  sizes.push_back(b.rows());
  return Shape(sizes);
}

GemmOperands checked(GemmOperands operands) {
  operands.shape = shape_of(operands.a, operands.b);
  check_hadamard(operands, kOp);
  return operands;
}

// Calls visit(position) for every matrix of a batch that has one.
template <typename Visit>
void for_each_position(const Shape& lead, Visit&& visit) {
  std::array<std::int64_t, kMaxRank> position{};
  while (true) {
    visit(std::span<const std::int64_t>(position.data(), static_cast<std::size_t>(lead.rank())));
    int axis = lead.rank() - 1;
    for (; axis >= 0; --axis) {
      if (++position[static_cast<std::size_t>(axis)] < lead[axis]) break;
      position[static_cast<std::size_t>(axis)] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

Shape gemm_shape(const Operand& a, const Operand& b) {
  return shape_of(OperandStack(a, kOp, "A"), OperandStack(b, kOp, "B"));
}

GemmOperands checked_operands(const Operand& a, const Operand& b) {
  return checked({OperandStack(a, kOp, "A"), OperandStack(b, kOp, "B")});
}

GemmOperands checked_operands(const Operand& a, const PackedWeights& b) {
  return checked({OperandStack(a, kOp, "A"), OperandStack(b, "B")});
}

bool multiply(const GemmOperands& operands, const NamedView& result, const GemmOptions& options,
              NotOffered not_offered) {
  const FpEnvGuard guard;
  GemmRun run(operands, result, options, kOp);
  OperandStack a = operands.a;
  const OperandStack& b = operands.b;
  if (element_count(operands.shape) == 0) return true;
  View out = *result.view, residual = options.residual;

  const auto collapse_out = [&] {
    const auto collapsed = is_given(residual) ? with_rows_collapsed(residual) : residual;
    const auto collapsed_out = with_rows_collapsed(out);
    if (!collapsed || !collapsed_out) return false;
    residual = *collapsed;
    out = *collapsed_out;
    return true;
  };
  // One GEMM with a large M is faster than many with a small M.
  if (a.lead().rank() > 0 && b.lead().rank() == 0)
    if (const auto collapsed = a.collapsed(); collapsed && collapse_out()) a = *collapsed;
  const Shape lead = a.lead().rank() > 0 ? a.lead() : b.lead();
  const auto whole_job = [&](std::span<const std::int64_t> position) {
    GemmJob job = run.job(a.at(position), b.at(position), matrix_at(out, position));
    if (is_given(residual)) job.residual = matrix_at(residual, position);
    return job;
  };
  // The whole batch as groups in one launch, where a device offers that.
  const std::int64_t matrices = element_count(lead);
  if (b.lead().rank() > 0 && matrices > 1 && run.is_on_device()) {
    const auto a_rows = a.collapsed(), b_rows = b.collapsed();
    if (a_rows && b_rows) {
      const bool a_repeats = a.lead().rank() == 0;
      const std::int64_t m = a.rows(), n = b.rows();
      std::vector<GemmGroup> groups;
      for (std::int64_t i = 0; i < matrices; ++i)
        groups.push_back(
            {.a_row = a_repeats ? 0 : i * m, .rows = m, .b_row = i * n, .out_row = i * m});
      if (const View out_before = out, residual_before = residual; collapse_out()) {
        GemmJob job = run.job(a_rows->at({}), b_rows->at({}), matrix_at(out, {}));
        if (is_given(residual)) job.residual = matrix_at(residual, {});
        job.groups = groups.data();
        job.group_count = static_cast<std::int64_t>(groups.size());
        if (run.offers(job)) {
          run(job);
          run.end();
          return true;
        }
        out = out_before;
        residual = residual_before;
      }
    }
  }
  if (not_offered == NotOffered::is_told && run.is_on_device()) {
    bool all_offered = true;  // matrices of a batch may differ in how their memory is aligned
    for_each_position(lead, [&](std::span<const std::int64_t> position) {
      all_offered = all_offered && run.offers(whole_job(position));
    });
    if (!all_offered) return false;
  }
  for_each_position(lead,
                    [&](std::span<const std::int64_t> position) { run(whole_job(position)); });
  run.end();
  return true;
}

void gemm_into(const GemmOperands& operands, const View& out, const GemmOptions& options) {
  check_result(out, operands.shape, kOp);
  multiply(operands, {&out, "the output"}, options);
}

void gemm_into(const Operand& a, const Operand& b, const View& out, const GemmOptions& options) {
  gemm_into(checked_operands(a, b), out, options);
}

bool gemm_into_if_offered(const Operand& a, const Operand& b, const View& out,
                          const GemmOptions& options) {
  const GemmOperands operands = checked_operands(a, b);
  check_result(out, operands.shape, kOp);
  return multiply(operands, {&out, "the output"}, options, NotOffered::is_told);
}

Tensor gemm(const Operand& a, const Operand& b, const GemmOptions& options) {
  return gemm(checked_operands(a, b), options);
}

Tensor gemm(const GemmOperands& operands, const GemmOptions& options) {
  Tensor out = values_on(operands.a.elements().device, operands.shape, options.out, options.stream);
  multiply(operands, {&out.view(), "the output"}, options);
  return out;
}

}  // namespace octavo
