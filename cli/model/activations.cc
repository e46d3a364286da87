#include "cli/model/activations.h"

#include "cli/command.h"
#include "cli/usage.h"
#include "octavo/base/error.h"

namespace octavo::cli {

void add_activations_option(CLI::App& app, std::string& name) {
  app.add_option("--activations", name,
                 "What enters products and attention: float32 (default), or bfloat16, as servers "
                 "compute; quantized inputs stay so")
      ->type_name("TYPE");
}

DType activations_of(const std::string& op, const std::string& name) {
  if (name.empty() || name == "float32" || name == "f32") return DType::f32;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  throw UsageError(
      text('[', op, "] --activations: got '", shown(name), "'; expected float32 or bfloat16"));
}

}  // namespace octavo::cli
