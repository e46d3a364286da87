// For messages about user input: the nearest known name, and a safe way to print the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

// The name within a third of the length in edits (insert, delete, replace, swap neighbours), or "".
std::string nearest(std::string_view typed, const std::vector<std::string>& names);

// " Did you mean 'x'?", or "" when nothing is near.
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names);

// At most sixty printable characters of untrusted text.
std::string shown(std::string_view typed);

}  // namespace octavo::cli
