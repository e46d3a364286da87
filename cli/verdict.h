// Who loads a checkpoint, by the findings of verify: one line for those who do, one for each who
// does not, with the first reason.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/json.h"
#include "octavo/checkpoint/verify.h"

namespace octavo::cli {

struct Verdict {
  std::vector<std::string> loads;
  std::vector<const Finding*> fails;  // the first error of each loader that does not
  std::vector<std::string> fail_names;
};

// Points into `findings`.
Verdict verdict_of(const std::vector<Loader>& loaders, const std::vector<Finding>& findings);

std::string verdict_text(const Verdict& verdict, bool reasons);
Json json_of(const Verdict& verdict);

// The text of notes, or of anything that comes once for every layer: of those that differ in
// numbers alone the first three, and how many more there are.
std::vector<std::string> without_floods(const std::vector<std::string>& lines);

}  // namespace octavo::cli
