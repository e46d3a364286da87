// A GEMM operand as a batch of matrices for the kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/exec/place_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/packed_weights.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Collapses [d0, d1, ..., rows, cols] to [d0 * d1 * ... * rows, cols], where the strides allow it.
std::optional<View> with_rows_collapsed(const View& view);

// A matrix of a stack; `position` has one index for each leading dimension.
Matrix matrix_at(const View& stack, std::span<const std::int64_t> position);

// For tensors assembled by the caller: throws where the shapes of codes or scales do not fit the
// tensor's scaling.
void check_grid(const QuantizedTensor& tensor, std::string_view op, std::string_view name);

// The largest magnitude that is there, if codes are bytes; else 0. Inf and NaN do not count. In
// memory of the CPU.
double largest_code(const Matrix& codes);

class OperandStack {
 public:
  // Throws where this cannot be an operand. `name` is "A" or "B".
  OperandStack(const Operand& operand, std::string_view op, std::string_view name);
  OperandStack(const PackedWeights& weights, std::string_view name);

  [[nodiscard]] std::int64_t rows() const { return elements_.shape[elements_.shape.rank() - 2]; }
  [[nodiscard]] std::int64_t depth() const { return elements_.shape[elements_.shape.rank() - 1]; }
  [[nodiscard]] Shape lead() const;  // the dimensions before those two
  [[nodiscard]] const View& elements() const { return elements_; }
  [[nodiscard]] GemmOperand at(std::span<const std::int64_t> position) const;

  [[nodiscard]] const Scaling* scaling() const { return scaling_; }  // null: values

  // The same with leading dimensions collapsed into rows, where strides and tiles allow it.
  [[nodiscard]] std::optional<OperandStack> collapsed() const;
  // Rows of a stack that is one matrix, from the beginning of a tile on.
  [[nodiscard]] OperandStack rows_from(std::int64_t first, std::int64_t count) const;

  // Packed weights whose order is that of a backend's microkernel; else null.
  [[nodiscard]] const PackedWeights* in_panels() const { return in_panels_; }

  // All of its memory, with its names in messages.
  void add_views(std::vector<NamedView>& views) const;

 private:
  std::string_view name_;
  View elements_{};  // values or codes
  View scales_{};    // of rank 0: one for all
  View tensor_scale_{};
  const Scaling* scaling_ = nullptr;  // of the tensor that the operand refers to
  const PackedWeights* in_panels_ = nullptr;
};

// What is multiplied, once it has been checked.
struct GemmOperands {
  OperandStack a, b;
  Shape shape{};  // of the result
};

// A transform of rows leaves their products as they were only if both operands have the same one.
void check_hadamard(const GemmOperands& operands, std::string_view op);

}  // namespace octavo
