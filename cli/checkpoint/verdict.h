// The loader verdict as text: one line for the loaders that load the checkpoint, one for each that
// fails, with its first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/checkpoint/verify/loader_verdict.h"

namespace octavo::cli {

enum class VerdictDetail : std::uint8_t { reasons, counts };  // what follows each loader's name
std::string verdict_text(const Verdict& verdict, VerdictDetail behind);
// One line per finding with all its loaders; of findings that differ only in numbers the first
// three.
std::string findings_text(const std::vector<Finding>& findings);
// The scope of the check, which without findings is the whole result.
std::string scope_text(const VerifyScope& scope, const VerifyOptions& options);

// Limits repeated lines, such as notes that occur once per layer: of lines that differ only in
// numbers the first three are kept, with a count of the rest.
std::vector<std::string> limit_repeats(const std::vector<std::string>& lines);

}  // namespace octavo::cli
