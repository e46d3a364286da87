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
// Hadamard transforms cancel in a product only if both operands have the same one.
void check_hadamard(const Operand& a, const Operand& b, std::string_view op);

// gemm_into, into values of a StagingMemory.
void gemm_into_staging(const Operand& a, const Operand& b, const View& out,
                       const GemmOptions& options);

class GemmRun {
 public:
  struct Operands {
    const OperandStack &a, &b;
    const Operand &a_operand, &b_operand;
  };
  // Throws where `out` does not fit a result of this shape, or bias, residual or workspace do not
  // fit.
  GemmRun(const Operands& operands, const Shape& shape, const NamedView& out,
          const GemmOptions& options, std::string_view op);

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
  // Throws where a device's backend does not offer the product: names the request and the
  // alternatives.
  [[noreturn]] void refuse(const Kernels& kernels, const GemmJob& job) const;

  const Operand &a_, &b_;
  const GemmOptions& options_;
  std::string_view op_;
  Exec exec_;
  StagingMemory memory_, count_memory_;
  unsigned long long* aligned_ = nullptr;  // a counter on the device, if one is wanted
};

}  // namespace octavo
