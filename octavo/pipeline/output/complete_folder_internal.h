// When is an output folder complete? When it has the config.json that octavo writes last, and no
// unfinished work of one process. Here alone is that decided; what a complete folder was made from,
// and whether it still has all its files, is asked in
// octavo/pipeline/stream/finished_folder_internal.h.
#pragma once

#include <string>

#include "octavo/base/json/json.h"

namespace octavo {

// What octavo recorded in its config.json; null where the folder is not complete.
[[nodiscard]] Json finished_provenance(const std::string& folder);
[[nodiscard]] bool is_complete(const std::string& folder);

}  // namespace octavo
