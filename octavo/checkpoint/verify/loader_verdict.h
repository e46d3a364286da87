// Who loads a checkpoint, by the findings of verify(), and all that verify can say in one document:
// what `octavo verify --json` prints and Python gives.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/macros.h"
#include "octavo/checkpoint/verify/verify.h"

namespace octavo {

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
[[nodiscard]] OCTAVO_API Verdict verdict_of(const std::vector<Loader>& loaders,
                                            const std::vector<Finding>& findings);

[[nodiscard]] OCTAVO_API Json json_of(const Verdict& verdict);

struct Verification {
  bool quantized = false;
  std::string dialect{};  // where it is quantized
  std::int64_t weights = 0;
  VerifyScope scope{};
  std::vector<Finding> findings{};

  [[nodiscard]] std::size_t errors() const;
  // No errors; if strict, no findings.
  [[nodiscard]] bool good(bool strict = false) const;
};
// verify(), and what stands behind it.
[[nodiscard]] OCTAVO_API Verification verify_all(const CheckpointReader& checkpoint,
                                                 const VerifyOptions& options = {});
[[nodiscard]] OCTAVO_API Json json_of(const Verification& verification,
                                      const std::vector<Loader>& loaders, bool strict = false);

}  // namespace octavo
