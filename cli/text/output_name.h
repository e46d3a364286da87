// Checks names of output files.
#pragma once

#include <string>
#include <string_view>

namespace octavo::cli {

// The name itself. Output files are renamed into place when complete, so stdout is not possible:
// "-" is a UsageError.
const std::string& output_name(const std::string& op, const std::string& path);

// The file extension must match the content, or other programs misread the file: a UsageError where
// the name has another extension than ".svg" or ".safetensors".
void check_ending(std::string_view op, std::string_view option, const std::string& path,
                  std::string_view ending);

}  // namespace octavo::cli
