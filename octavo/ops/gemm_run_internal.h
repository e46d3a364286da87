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
// It can be written, and is of this shape.
void check_result(const View& out, const Shape& shape, std::string_view op);

// The operands of gemm, checked.
GemmOperands checked_operands(const Operand& a, const Operand& b);

// gemm of these into memory for the result. Where the device's backend does not offer the product:
// an error, or the result false with nothing written. A CPU offers every product.
enum class NotOffered { fails, is_told };
bool multiply(const GemmOperands& operands, const NamedView& out, const GemmOptions& options,
              NotOffered not_offered = NotOffered::fails);

// gemm_into where the product is offered, and true; else false.
[[nodiscard]] bool gemm_into_if_offered(const Operand& a, const Operand& b, const View& out,
                                        const GemmOptions& options);

class GemmRun {
 public:
  // Throws where what is given beside the operands does not fit.
  GemmRun(const GemmOperands& operands, const NamedView& out, const GemmOptions& options,
          std::string_view op);

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

  const GemmOperands& operands_;
  const GemmOptions& options_;
  std::string_view op_;
  Exec exec_;
  StagingMemory memory_, count_memory_;
  unsigned long long* aligned_ = nullptr;  // a counter on the device, if one is wanted
};

}  // namespace octavo
