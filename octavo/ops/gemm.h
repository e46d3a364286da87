// GEMM of quantized tensors and values, batched and grouped, with bias, activation and residual
// (epilogue):
//   Tensor d = gemm(quantize(x, preset("mxfp8")), quantize(w, preset("mxfp8")));
// is [M, K] x [N, K]^T, both operands quantized along K, as activations and weights lie in memory.
// The other products of training have the same form with columnwise copies: gemm(dy, transposed(w))
// and gemm(transposed(dy), transposed(x)). docs/numerics/gemm.md defines the computation and its
// bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "octavo/backend/accumulator_names.h"
#include "octavo/backend/kernels.h"
#include "octavo/base/log.h"
#include "octavo/base/macros.h"
#include "octavo/ops/activation.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// [..., rows, K]: values of any strides, or codes with scales. It is a reference, valid for the
// length of a call.
class Operand {
 public:
  Operand(const View& values) : view_(values) {}                 // NOLINT: meant to be implicit
  Operand(const Tensor& values) : view_(values.view()) {}        // NOLINT
  Operand(const QuantizedTensor& codes) : quantized_(&codes) {}  // NOLINT

  [[nodiscard]] const QuantizedTensor* quantized() const { return quantized_; }
  [[nodiscard]] const View& values() const { return view_; }
  [[nodiscard]] const Shape& shape() const {
    return quantized_ != nullptr ? quantized_->shape : view_.shape;
  }

 private:
  View view_{};
  const QuantizedTensor* quantized_ = nullptr;
};

// out = activation(A B^T + bias) + residual, computed in that order and rounded once at the end.
struct GemmOptions {
  DType out = DType::f32;  // f32, f16, bf16; f64 with the f64 accumulator
  Accumulator accumulator = Accumulator::native;
  std::int64_t promote_every = 128;  // hopper_fp8 only; a multiple of 32, or 0 for never
  View bias{};                       // [N], or without memory
  std::optional<ActivationKind> activation{};
  View residual{};  // of the shape of the result, or without memory
  // If given: incremented by the number of elements of MX operands whose value changed in the
  // product, because a device aligned block exponents per row or per 128 columns
  // (docs/numerics/gemm.md). 0: the product is that of the operands as they are; also where
  // alignment would lose most of a block, since such operands are not aligned. The call then
  // synchronizes with the device.
  std::int64_t* aligned = nullptr;
  // Data-oblivious: no branch and no address depends on the numbers of a call, only on shapes and
  // formats, so that its time and its traces tell nothing of them. On a CPU, with the accumulators
  // native and f32; slower where scales decide what is exact.
  bool oblivious = false;

  int threads = 0;  // 0: one for each core that the process may use; results do not depend on it
  const Kernels* backend = nullptr;
  Log* log = nullptr;
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

// Leading dimensions are a batch: the same ones in A and B, or in one of them only.
[[nodiscard]] OCTAVO_API Tensor gemm(const Operand& a, const Operand& b,
                                     const GemmOptions& options = {});
// Into memory that overlaps no operand; its dtype decides, not options.out.
OCTAVO_API void gemm_into(const Operand& a, const Operand& b, const View& out,
                          const GemmOptions& options = {});

// Grouped GEMM (MoE): rows of A times the matrix of their group in B: [rows, K] and [groups, N, K]
// make [rows, N]. rows[i] consecutive rows of A are in group i; the groups cover all rows; a group
// may be empty. Tokens sorted by expert are so multiplied by their experts' weights: on a device in
// one launch.
[[nodiscard]] OCTAVO_API Tensor gemm_grouped(const Operand& a, const Operand& b,
                                             std::span<const std::int64_t> rows,
                                             const GemmOptions& options = {});
OCTAVO_API void gemm_grouped_into(const Operand& a, const Operand& b,
                                  std::span<const std::int64_t> rows, const View& out,
                                  const GemmOptions& options = {});

// The f32 result, quantized: the same codes and scales as quantize(gemm(a, b), scaling). Where the
// scaling allows row blocks, only a row block of the f32 result is in memory.
[[nodiscard]] OCTAVO_API QuantizedTensor gemm_quantized(const Operand& a, const Operand& b,
                                                        const Scaling& scaling,
                                                        const GemmOptions& options = {});

// The same into memory of make_quantized that overlaps no operand; its scaling decides. On a device
// the call does not synchronize and can be captured into a graph.
OCTAVO_API void gemm_quantized_into(const Operand& a, const Operand& b, QuantizedTensor& out,
                                    const GemmOptions& options = {});

// Shape of the result, [batch..., M, N]; checks the operands.
[[nodiscard]] OCTAVO_API Shape gemm_shape(const Operand& a, const Operand& b);

}  // namespace octavo
