// A quantized checkpoint in another spelling, or back as ordinary numbers. Streams like
// quantize_checkpoint, with the same promises: little memory, whole files, resumable, never in
// place.
//   convert_checkpoint("nvfp4-ct/", "nvfp4-modelopt/", Dialect::modelopt);
//   dequantize_checkpoint("deepseek/", "bf16/", DType::bf16);
#pragma once

#include <string>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/convert_options.h"

namespace octavo {

// Codes and scales stay what they are, bit by bit; a second level that one spelling multiplies by
// and the other divides by stays within an ulp. Static scales of activations and of the cache of
// keys and values come along where the target has words for them, and are in the notes otherwise.
// Throws Error(unsupported) with weight and reason
// where the target has no words for one of them, Error(invalid_argument) where the source is not
// quantized, and what quantize_checkpoint throws.
OCTAVO_API ConvertCheckpointResult convert_checkpoint(const std::string& source,
                                                      const std::string& out, Dialect target,
                                                      const ConvertCheckpointOptions& options = {});

// Every quantized weight as bf16, f16 or f32 (rounded to nearest even from scale times code);
// other tensors are copied, and config.json says the type. Experts that quantize_checkpoint took
// out of a stack are one tensor again, as the source had them. A value beyond f16's range is an
// error that names the weight, unless clamp_non_finite.
OCTAVO_API ConvertCheckpointResult
dequantize_checkpoint(const std::string& source, const std::string& out, DType dtype,
                      const ConvertCheckpointOptions& options = {});

}  // namespace octavo
