// Names of input files.
#pragma once

#include <string>
#include <string_view>

namespace octavo::cli {

// Throws Error(io) for an input that cannot be found, with the nearest name beside it. `expected`
// says what the input should be. Called before other checks: a mistyped name is the real trouble,
// whatever else the command lacks.
void check_input(const std::string& op, const std::string& path, std::string_view expected);
// The same for a model: a folder, a .safetensors or a .gguf file.
void check_model(const std::string& op, const std::string& path);

}  // namespace octavo::cli
