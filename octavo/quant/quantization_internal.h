// The common path of quantize, requantize and fused producers.
#pragma once

#include <string_view>

#include "octavo/quant/quantize.h"

namespace octavo {

// Source of a quantization: values, a producer, or another quantized tensor.
struct QuantizationSource {
  View view{};  // of the values; for a quantization its codes. Its shape is that of the result
  const QuantizedTensor* quantized = nullptr;
  const Producer* producer = nullptr;
  bool is_staging = false;  // values of a StagingMemory
};

// The job that a scaling and options ask for, before it has memory to read and to write.
QuantizeJob job_of(const QuantizationSource& source, const Scaling& scaling,
                   const QuantizeOptions& options);

// The calling verb has checked the source, `out`, whose memory fits its scaling, and the options.
// `op` is the name in messages.
void run_quantization(const QuantizationSource& source, QuantizedTensor& out,
                      const QuantizeOptions& options, std::string_view op);

}  // namespace octavo
