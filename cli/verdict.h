// Who loads a checkpoint, by the findings of verify: one line for those who do, one for each who
// does not, with the first reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "octavo/base/json.h"
#include "octavo/checkpoint/verify.h"

namespace octavo::cli {

// How often a finding is of a loader.
struct Tally {
  std::size_t errors = 0, warnings = 0;
};

struct Verdict {
  std::vector<std::string> loads;
  std::vector<const Finding*> fails;  // the first error of each loader that does not
  std::vector<std::string> fail_names;
  std::map<std::string, Tally> tallies;  // of every loader that was asked for
};

// Points into `findings`.
Verdict verdict_of(const std::vector<Loader>& loaders, const std::vector<Finding>& findings);

enum class Behind : std::uint8_t { reasons, counts };  // each loader's name
std::string verdict_text(const Verdict& verdict, Behind behind);
Json json_of(const Verdict& verdict);
Json json_of(const std::map<std::string, Tally>& tallies);
// "1 error", "2 errors".
std::string counted(std::size_t count, std::string_view what);

// The text of notes, or of anything that comes once for every layer: of those that differ in
// numbers alone the first three, and how many more there are.
std::vector<std::string> without_floods(const std::vector<std::string>& lines);

}  // namespace octavo::cli
