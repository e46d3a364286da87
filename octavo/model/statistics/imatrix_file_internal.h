// llama.cpp's imatrix files, E[x^2] of inputs, as statistics: the binary format of 2024, and GGUF.
#pragma once

#include <string>

#include "octavo/model/statistics/statistics_file.h"

namespace octavo::eval {

// Files are untrusted: lengths are checked against what the file has before memory is taken.
[[nodiscard]] ModelStatistics read_imatrix_gguf(const std::string& path);
[[nodiscard]] ModelStatistics read_imatrix_binary(const std::string& path);

// A content in memory, for fuzzing; `file` is for messages.
[[nodiscard]] ModelStatistics parse_imatrix_binary(std::string_view content, std::string_view file);

}  // namespace octavo::eval
