// The element type of a .npy file, from its header and --from.
#pragma once

#include <optional>
#include <string>

#include "cli/npy/npy.h"
#include "cli/text/names.h"

namespace octavo::cli {

// Throws UsageError when the two contradict each other, or when neither determines it. `op` is the
// message's prefix.
Element npy_element(const std::string& op, const std::string& path, const NpyHeader& header,
                    const std::optional<std::string>& from);

}  // namespace octavo::cli
