// The metadata of a GGUF file from a model's config.json and tokenizer.json: the inverse of
// gguf_config.h and gguf_tokenizer.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/gguf_header.h"
#include "octavo/checkpoint/gguf/gguf_names.h"

namespace octavo::gguf {

// By config.json's model_type; null for models that octavo writes no GGUF file of.
[[nodiscard]] const Architecture* architecture_of_config(const Json& config);

// Throws Error(unsupported) with the reason where llama.cpp would not run the model as it is,
// Error(invalid_argument) where config.json lacks a size.
[[nodiscard]] Metadata keys_of_config(const Json& config, std::string_view name);
// Factors of rotary frequencies for kRopeFactors; empty where the model has none.
[[nodiscard]] std::vector<float> rope_factors(const Json& config);

// Adds the vocabulary. Throws Error(unsupported) where llama.cpp has no name for how the tokenizer
// cuts text.
void add_vocabulary(const Json& tokenizer, const Json& tokenizer_config, const Json& config,
                    Metadata& metadata);

}  // namespace octavo::gguf
