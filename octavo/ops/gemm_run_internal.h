// Common part of gemm and gemm_grouped: argument checks, choice of backend, execution.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/backend/kernels.h"
#include "octavo/exec/place_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/gemm_operand_internal.h"

namespace octavo {

// Whether an optional view was given.
bool is_given(const View& view);
// Checks that the output can be written and has this shape.
void check_result(const View& out, const Shape& shape, std::string_view op);

// The operands of gemm, checked, and gemm of those.
GemmOperands checked_operands(const Operand& a, const Operand& b);
GemmOperands checked_operands(const Operand& a, const PackedWeights& b);
Tensor gemm(const GemmOperands& operands, const GemmOptions& options);
void gemm_into(const GemmOperands& operands, const View& out, const GemmOptions& options);
QuantizedTensor gemm_quantized(const GemmOperands& operands, const Scaling& scaling,
                               const GemmOptions& options);
void gemm_quantized_into(const GemmOperands& operands, QuantizedTensor& out,
                         const GemmOptions& options);

// gemm into memory for the result. Where the device's backend does not offer the product: an error,
// or false with nothing written. A CPU offers every product.
enum class NotOffered { fails, is_told };
bool multiply(const GemmOperands& operands, const NamedView& out, const GemmOptions& options,
              NotOffered not_offered = NotOffered::fails);

// gemm_into where the product is offered, and true; else false.
[[nodiscard]] bool gemm_into_if_offered(const Operand& a, const Operand& b, const View& out,
                                        const GemmOptions& options);

class GemmRun {
 public:
  // Throws where `out`, bias, residual or workspace do not fit.
  GemmRun(const GemmOperands& operands, const NamedView& out, const GemmOptions& options,
          std::string_view op);

  // The residual is not set: the caller sets the part that belongs to the result.
  [[nodiscard]] GemmJob job(const GemmOperand& a, const GemmOperand& b, const Matrix& out) const;
  [[nodiscard]] bool is_on_device() const { return exec_.device.kind != DeviceKind::cpu; }
  [[nodiscard]] bool offers(const GemmJob& job) const;  // on a device
  void operator()(const GemmJob& job);
  // After the last product: returns the count of elements that exponent alignment changed, if
  // requested.
  void end();

 private:
  [[nodiscard]] const Kernels& chosen(const GemmJob& job) const;
  void check_packed(const GemmJob& job) const;  // throws where packed weights cannot be read
  // Throws where a device's backend does not offer the product: names the request and the
  // alternatives.
  void check_oblivious() const;
  [[noreturn]] void refuse(const Kernels& kernels, const GemmJob& job) const;

  const GemmOperands& operands_;
  const GemmOptions& options_;
  std::string_view op_;
  Exec exec_;
  StagingMemory memory_, count_memory_;
  unsigned long long* aligned_ = nullptr;  // a counter on the device, if one is wanted
};

}  // namespace octavo
