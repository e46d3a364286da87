// Names of files to write, as typed.
#pragma once

#include <string>
#include <string_view>

namespace octavo::cli {

// The name itself. Files are renamed into place when they are whole, so stdout is none: "-" is a
// UsageError.
const std::string& output_name(const std::string& op, const std::string& path);

// A file that is written must be called what it is, or other programs take it for something else:
// a UsageError where the name has another ending than ".svg" or ".safetensors".
void check_ending(std::string_view op, std::string_view option, const std::string& path,
                  std::string_view ending);

}  // namespace octavo::cli
