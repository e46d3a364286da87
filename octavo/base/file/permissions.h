// Who may read a file, for one that is made from it: a copy is open to no more people than what it
// was copied from.
#pragma once

#include <string>

namespace octavo {

inline constexpr unsigned kAnyPermissions = 0666;

// The read and write permissions of what a name leads to (0644); those of any new file where
// nothing has that name, and the owner's alone where that cannot be known.
[[nodiscard]] unsigned permissions_of(const std::string& path);

}  // namespace octavo
