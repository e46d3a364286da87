// MadeCodes: codes of weights that were made before quantize_checkpoint is called, by something
// that knows more than the weights (GPTQ), in place of rounding each number. The pipeline plans,
// measures and writes as ever.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

class MadeCodes {
 public:
  virtual ~MadeCodes() = default;
  // Tells these codes from others, for resuming and for config.json: "gptq, damping 0.05, ...".
  [[nodiscard]] virtual std::string method() const = 0;
  [[nodiscard]] virtual bool has(const std::string& weight) const = 0;
  // Rows [first, first + count) of a weight, in the scaling that its action has. From any thread.
  [[nodiscard]] virtual QuantizedTensor rows(const std::string& weight, std::int64_t first,
                                             std::int64_t count) const = 0;
};

// Sees what is quantized, a row block at a time beside its values: for measures of its own. From
// any thread, in any order.
class RowBlockWatch {
 public:
  virtual ~RowBlockWatch() = default;
  // Of QuantizePlan::actions, and the index among the action's row blocks.
  virtual void see(std::size_t action, std::size_t ordinal, const View& values,
                   const QuantizedTensor& codes) const = 0;
};

}  // namespace octavo
