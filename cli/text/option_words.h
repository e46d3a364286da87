// The library names options as its callers in C++ and Python have them, "option recipe_for"; on the
// command line they are flags.
#pragma once

#include <string>

namespace octavo::cli {

// "--recipe-for" for every "option recipe_for" of a message.
std::string with_flags(std::string message);

}  // namespace octavo::cli
