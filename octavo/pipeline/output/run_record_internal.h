// The record of a run: what all processes that share a folder must agree on, in the file run.json
// of its work folder. The one that has the claim of it makes it, under the one name that there is,
// so that of two different runs that begin at once one alone goes on.
#pragma once

#include <chrono>
#include <string>

#include "octavo/base/json/json.h"

namespace octavo {

// Has a run begun in this work folder?
[[nodiscard]] bool has_run(const std::string& work);

// Begins the run, or joins it. `folder` is the output folder, for messages. Throws Error(io) where
// another run has begun: with another "plan", "sample" or "measure", or, unless `resume` says that
// none of its processes is left, with another "world" or "takeover_after".
// Waits for a process that is making the record; one that died before it did is taken over.
void join_run(const std::string& folder, const std::string& work, const Json& run, bool resume,
              std::chrono::milliseconds takeover_after);

}  // namespace octavo
