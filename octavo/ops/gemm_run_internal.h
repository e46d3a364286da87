// What products have in common, one or many: what is checked around them, who does them, and where
// they work.
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
// A transform of rows leaves their products as they were only if both operands have the same one.
void check_hadamard(const Operand& a, const Operand& b, std::string_view op);

// gemm_into, into values of a StagingMemory.
void gemm_into_staging(const Operand& a, const Operand& b, const View& out,
                       const GemmOptions& options);

// gemm_into where the device's backend offers the product, and true; else false, and nothing is
// written. A CPU offers every product.
[[nodiscard]] bool gemm_into_if_offered(const Operand& a, const Operand& b, const View& out,
                                        const GemmOptions& options);

class GemmRun {
 public:
  struct Operands {
    const OperandStack &a, &b;
    const Operand &a_operand, &b_operand;
  };
  // Throws where `out` is not what a result of this shape can be written to, or what is given
  // beside it does not fit.
  GemmRun(const Operands& operands, const Shape& shape, const NamedView& out,
          const GemmOptions& options, std::string_view op);

  // Without a residual: rows of it are where the result is.
  [[nodiscard]] GemmJob job(const GemmOperand& a, const GemmOperand& b, const Matrix& out) const;
  [[nodiscard]] bool is_on_device() const { return exec_.device.kind != DeviceKind::cpu; }
  [[nodiscard]] bool offers(const GemmJob& job) const;  // on a device
  void operator()(const GemmJob& job);
  // After the last of them: tells who asked what folding changed.
  void end();

 private:
  [[nodiscard]] const Kernels& chosen(const GemmJob& job) const;
  // A device's backend does not offer it: says what was asked for, and what is done instead.
  [[noreturn]] void refuse(const Kernels& kernels, const GemmJob& job) const;

  const Operand &a_, &b_;
  const GemmOptions& options_;
  std::string_view op_;
  Exec exec_;
  StagingMemory memory_, count_memory_;
  unsigned long long* aligned_ = nullptr;  // a counter on the device, if one is wanted
};

}  // namespace octavo
