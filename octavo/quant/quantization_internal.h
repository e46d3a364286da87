// One quantization, whatever it reads from: quantize, requantize and what producers make.
#pragma once

#include <string_view>

#include "octavo/quant/quantize.h"

namespace octavo {

// What a quantization reads: values, what is produced from values, or another quantization.
struct QuantizationSource {
  View view{};  // of the values; for a quantization its codes. Its shape is that of the result
  const QuantizedTensor* quantized = nullptr;
  const Producer* producer = nullptr;
  bool is_staging = false;  // values of a StagingMemory
};

// The job that a scaling and options ask for, before it has memory to read and to write.
QuantizeJob job_of(const QuantizationSource& source, const Scaling& scaling,
                   const QuantizeOptions& options);

// Of what the verb that calls this has checked: the source, `out`, whose memory fits its scaling,
// and options that fit both. `op` is whom messages speak for.
void run_quantization(const QuantizationSource& source, QuantizedTensor& out,
                      const QuantizeOptions& options, std::string_view op);

}  // namespace octavo
