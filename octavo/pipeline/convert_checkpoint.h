// convert_checkpoint and dequantize_checkpoint: a quantized checkpoint in another dialect, or
// dequantized. Streams like quantize_checkpoint, with the same guarantees: bounded memory, atomic
// files, resumable, never in place.
//   convert_checkpoint("nvfp4-ct/", "nvfp4-modelopt/", Dialect::modelopt);
//   dequantize_checkpoint("deepseek/", "bf16/", DType::bf16);
#pragma once

#include <string>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/convert_options.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Codes and scales are unchanged bit by bit; a second-level scale that one dialect stores as
// multiplier and the other as divisor changes by at most an ulp. Static activation scales and KV
// cache scales are converted where the target supports them, and noted otherwise. Throws
// Error(unsupported) with weight and reason where the target cannot hold a weight,
// Error(invalid_argument) where the source is not quantized, and what quantize_checkpoint throws.
// With options.shared the plan has source and target: those given here may be empty, and do not
// count.
OCTAVO_API ConvertCheckpointResult convert_checkpoint(const std::string& source,
                                                      const std::string& out, Dialect target,
                                                      const ConvertCheckpointOptions& options = {});

// Its plan, made of headers alone (plan/file/plan_file.h writes it). `result` gets what is known
// before the work: the source's dialect, how many weights, and notes.
[[nodiscard]] OCTAVO_API QuantizePlan plan_conversion(const CheckpointReader& source,
                                                      Dialect target,
                                                      ConvertCheckpointResult& result);

// Every quantized weight as bf16, f16 or f32 (scale times code, rounded to nearest even); other
// tensors are copied, and config.json gets the dtype. Experts that quantize_checkpoint split out of
// a stack are merged again, as the source had them. A value beyond f16's range is an error that
// names the weight, unless clamp_non_finite.
OCTAVO_API ConvertCheckpointResult
dequantize_checkpoint(const std::string& source, const std::string& out, DType dtype,
                      const ConvertCheckpointOptions& options = {});

}  // namespace octavo
