// Replaces option names in library messages ("option recipe_for") by command-line flags
// ("--recipe-for").
#pragma once

#include <string>

namespace octavo::cli {

// "--recipe-for" for every "option recipe_for" of a message.
std::string with_flags(std::string message);

}  // namespace octavo::cli
