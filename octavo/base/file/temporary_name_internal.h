// Names of temporary files, ".NAME.TOKEN.octavo-tmp" beside the file that they become: here they
// are made, and here they are known again by what removes those of a killed process.
//
// No two are the same, among all processes of all machines that see the folder: a process that was
// thought dead and goes on must neither rename nor remove the file of the one that took its work
// over.
#pragma once

#include <string>
#include <string_view>

namespace octavo {

// `name` without folders. The token is of the host, the process and random digits.
[[nodiscard]] std::string temporary_name(std::string_view name);

[[nodiscard]] bool is_temporary_name(std::string_view found);
// Is it a temporary one of this name?
[[nodiscard]] bool is_temporary_name_of(std::string_view found, std::string_view name);

}  // namespace octavo
