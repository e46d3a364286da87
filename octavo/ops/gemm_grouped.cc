// Grouped GEMM: row ranges of A times the matrices of a stack (mixture of experts).
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/ops/gemm_run_internal.h"
#include "octavo/ops/operand_rows_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "gemm_grouped";

// [rows of A, N], checked.
Shape shape_of(const OperandStack& a, const OperandStack& b, std::span<const std::int64_t> rows) {
  if (a.lead().rank() != 0 || b.lead().rank() != 1)
    fail(ErrorCode::invalid_argument, kOp, "A has shape ", to_string(a.elements().shape),
         " and B has shape ", to_string(b.elements().shape),
         "; expected [rows, K] and [groups, N, K]");
  if (a.depth() != b.depth())
    fail(ErrorCode::invalid_argument, kOp, "K is ", a.depth(), " in A and ", b.depth(),
         " in B; both end with the same K");
  const std::int64_t groups = b.lead()[0];
  if (static_cast<std::int64_t>(rows.size()) != groups)
    fail(ErrorCode::invalid_argument, kOp, "got rows of ", rows.size(), " groups, and B has ",
         groups, " matrices; expected a number for each");
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] > a.rows() - sum)
      fail(ErrorCode::invalid_argument, kOp, "group ", i, " has ", rows[i],
           " rows, and the groups before it have ", sum, " of the ", a.rows(), " that A has");
    sum += rows[i];
  }
  if (sum != a.rows())
    fail(ErrorCode::invalid_argument, kOp, "groups have ", sum, " rows, and A has ", a.rows(),
         "; expected every row of A in one group");
  return {a.rows(), b.rows()};
}

// The operands of gemm_grouped and its groups, checked.
struct GroupedOperands {
  GemmOperands all;
  std::vector<GemmGroup> groups;
};

Matrix rows_at(Matrix matrix, std::int64_t first, std::int64_t count) {
  if (matrix.data != nullptr)
    matrix.data = static_cast<std::byte*>(matrix.data) + first * matrix.row_pitch;
  matrix.rows = count;
  return matrix;
}

GemmOperand rows_at(GemmOperand operand, std::int64_t first, std::int64_t count) {
  if (!operand.is_quantized()) {
    operand.values = rows_at(operand.values, first, count);
    return operand;
  }
  QuantizedMatrix& quantized = operand.quantized;
  const std::int64_t each = tile_extent(quantized.tile.rows, quantized.codes.rows);
  quantized.codes = rows_at(quantized.codes, first, count);
  // One scale for all rows is that of these, too.
  if (quantized.tile.rows > 0)
    quantized.scales =
        rows_at(quantized.scales, first / each, tile_count(quantized.tile.rows, count));
  return operand;
}

// Rows of A that share scales must be in one group.
void check_tiles(const OperandStack& a, std::span<const GemmGroup> groups) {
  const std::int64_t each = rows_of_a_tile(a.scaling(), a.rows());
  if (each <= 1) return;  // its own scale for every row, or one for all
  for (std::size_t i = 0; i < groups.size(); ++i)
    check(groups[i].a_row % each == 0 || groups[i].rows == 0, ErrorCode::invalid_argument, kOp,
          "group ", i, " begins at row ", groups[i].a_row, ", within a tile of ", each,
          " rows that share scales; let groups begin at multiples of ", each,
          ", or quantize A with tiles of one row");
}

GroupedOperands checked_operands(const Operand& a, const Operand& b,
                                 std::span<const std::int64_t> rows) {
  GroupedOperands operands{.all = {.a = OperandStack(a, kOp, "A"), .b = OperandStack(b, kOp, "B")},
                           .groups = {}};
  GemmOperands& all = operands.all;
  all.shape = shape_of(all.a, all.b, rows);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < rows.size(); first += rows[i], ++i)
    operands.groups.push_back({.a_row = first,
                               .rows = rows[i],
                               .b_row = static_cast<std::int64_t>(i) * all.b.rows(),
                               .out_row = first});
  check_hadamard(all, kOp);
  check_tiles(all.a, operands.groups);
  return operands;
}

void multiply(const GroupedOperands& operands, const View& out, const GemmOptions& options) {
  const FpEnvGuard guard;
  const std::vector<GemmGroup>& groups = operands.groups;
  const OperandStack &a = operands.all.a, &b = operands.all.b;
  GemmRun run(operands.all, {&out, "the output"}, options, kOp);
  if (element_count(operands.all.shape) == 0) return;
  const GemmOperand all_rows = a.at({});
  const Matrix result = matrix_at(out, {});
  const Matrix residual = is_given(options.residual) ? matrix_at(options.residual, {}) : Matrix{};
  if (const auto stack = b.collapsed(); stack && run.is_on_device()) {
    GemmJob job = run.job(all_rows, stack->at({}), result);
    job.residual = residual;
    job.groups = groups.data();
    job.group_count = static_cast<std::int64_t>(groups.size());
    if (run.offers(job)) {
      run(job);
      return run.end();
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GemmGroup& group = groups[i];
    if (group.rows == 0) continue;
    const std::int64_t position[] = {static_cast<std::int64_t>(i)};
    GemmJob job = run.job(rows_at(all_rows, group.a_row, group.rows), b.at(position),
                          rows_at(result, group.out_row, group.rows));
    if (residual.data != nullptr) job.residual = rows_at(residual, group.out_row, group.rows);
    job.is_group = true;
    run(job);
  }
  run.end();
}

}  // namespace

void gemm_grouped_into(const Operand& a, const Operand& b, std::span<const std::int64_t> rows,
                       const View& out, const GemmOptions& options) {
  const GroupedOperands operands = checked_operands(a, b, rows);
  check_result(out, operands.all.shape, kOp);
  multiply(operands, out, options);
}

Tensor gemm_grouped(const Operand& a, const Operand& b, std::span<const std::int64_t> rows,
                    const GemmOptions& options) {
  const GroupedOperands operands = checked_operands(a, b, rows);
  const GemmOperands& all = operands.all;
  Tensor out = values_on(all.a.elements().device, all.shape, options.out, options.stream);
  multiply(operands, out.view(), options);
  return out;
}

}  // namespace octavo
