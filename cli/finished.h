// Is an output folder what an earlier, finished call with the same words left?
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::cli {

// By what its config.json says octavo did; false where there is none, or unfinished work.
bool is_finished(const std::string& folder,
                 const std::vector<std::pair<std::string_view, std::string>>& said);

// Says so on stderr.
void say_finished(std::string_view op, const std::string& folder);

}  // namespace octavo::cli
