#include "octavo/nn/linear/quantized_weight.h"

#include <vector>

#include "octavo/base/error.h"
#include "octavo/nn/linear/linear_internal.h"

namespace octavo {

std::shared_ptr<const QuantizedTensor> requantized_weight(const ModuleQuantizers& quantizers,
                                                          const View& values,
                                                          const LinearRun& run) {
  const auto lock = quantizers.lock();
  const std::shared_ptr<QuantizerSet> set = quantizers.forward();
  check(set != nullptr, ErrorCode::unsupported, quantizers.module_type(),
        "has no quantizers yet; expected those its weight was made with");
  return std::make_shared<const QuantizedTensor>(
      quantized(*set, {TensorRole::weight, true, true}, values, run));
}

std::shared_ptr<const QuantizedTensor> first_quantized_weight(ModuleQuantizers& quantizers,
                                                              const Recipe& recipe,
                                                              const View& values,
                                                              const LinearRun& run) {
  const auto lock = quantizers.lock();
  (void)quantizers.use(recipe, {}, false, run.stream);
  const std::shared_ptr<QuantizerSet> set = quantizers.forward();
  set->of(TensorRole::weight)
      .calibrate(
          values,
          {.threads = run.threads, .backend = run.backend, .log = run.log, .stream = run.stream});
  set->update(run.stream, true);
  auto codes = requantized_weight(quantizers, values, run);
  forget_step(std::vector<StepEntry>{{set, nullptr, run.stream}});  // seen already
  return codes;
}

std::shared_ptr<const QuantizedTensor> switched_weight(ModuleQuantizers& quantizers,
                                                       const Recipe& recipe,
                                                       const QuantizedTensor& codes, DType dtype,
                                                       const LinearRun& run) {
  const Tensor values = dequantize(codes, dtype, {.threads = run.threads, .stream = run.stream});
  const auto lock = quantizers.lock();
  (void)quantizers.use(recipe, {}, true, run.stream);
  return first_quantized_weight(quantizers, recipe, values.view(), run);
}

}  // namespace octavo
