// Target gguf: one file, with llama.cpp's names, types and order of rows, and the model's config
// and tokenizer as metadata.
#pragma once

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Completes a plan whose weights have outputs of the dialect. Throws Error(unsupported) with the
// reason where llama.cpp would not run the model.
void plan_gguf(const CheckpointReader& source, QuantizePlan& plan);

// What unquantized tensors of this type are written as: as they are, but for a GGUF source, where
// all get the type that its config.json says.
[[nodiscard]] safetensors::StoredType plain_type(const CheckpointReader& source,
                                                 safetensors::StoredType type);

}  // namespace octavo
