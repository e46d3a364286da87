// Who loads a checkpoint, as text: one line for those who do, one for each who does not, with the
// first reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/checkpoint/verify/loader_verdict.h"

namespace octavo::cli {

enum class VerdictDetail : std::uint8_t { reasons, counts };  // each loader's name
std::string verdict_text(const Verdict& verdict, VerdictDetail behind);
// "1 error", "2 errors".
std::string counted(std::size_t count, std::string_view what);

// The text of notes, or of anything that comes once for every layer: of those that differ in
// numbers alone the first three, and how many more there are.
std::vector<std::string> limit_repeats(const std::vector<std::string>& lines);

}  // namespace octavo::cli
