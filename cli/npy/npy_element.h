// What the elements of a .npy file are, from what it says itself and what --from adds.
#pragma once

#include <optional>
#include <string>

#include "cli/npy/npy.h"
#include "cli/text/names.h"

namespace octavo::cli {

// Throws UsageError when the two do not fit, or when nobody says. `op` begins the message.
Element npy_element(const std::string& op, const std::string& path, const NpyHeader& header,
                    const std::optional<std::string>& from);

}  // namespace octavo::cli
