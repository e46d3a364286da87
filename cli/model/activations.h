// --activations: what enters the products of a model that runs. For generate and eval.
#pragma once

#include <string>

#include "octavo/tensor/dtype.h"

namespace CLI {
class App;
}

namespace octavo::cli {

void add_activations_option(CLI::App& app, std::string& name);
// Throws UsageError for another type than float32 and bfloat16.
DType activations_of(const std::string& op, const std::string& name);

}  // namespace octavo::cli
