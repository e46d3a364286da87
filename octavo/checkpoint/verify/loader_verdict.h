// Verdict per loader from the findings of verify(), and
// the complete verification as one JSON document: what `octavo verify --json` prints and Python
// returns.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/verify/verify.h"

namespace octavo {

// Number of findings of one loader.
struct Tally {
  std::size_t errors = 0, warnings = 0;
};

struct Verdict {
  std::vector<std::string> loads;
  std::vector<const Finding*> fails;  // the first error of each loader that fails
  std::vector<std::string> fail_names;
  std::map<std::string, Tally> tallies;  // of every requested loader
};

// The result points into `findings`.
[[nodiscard]] OCTAVO_API Verdict verdict_of(const std::vector<Loader>& loaders,
                                            const std::vector<Finding>& findings);

// As JSON text: {"loads": [...], "does_not_load": {loader: reason}}.
[[nodiscard]] OCTAVO_API std::string json_of(const Verdict& verdict);

struct OCTAVO_API Verification {
  std::vector<Loader> loaders{};  // that it was checked for
  bool named = false;             // were they asked for by name?
  bool quantized = false;
  std::string dialect{};  // empty where it is not quantized
  std::int64_t weights = 0;
  VerifyScope scope{};
  std::vector<Finding> findings{};

  [[nodiscard]] std::size_t errors() const;
  // All loaders that were named load it. Without names: one does, and none loads something else
  // and says nothing. If strict, there are no findings.
  [[nodiscard]] bool good(bool strict = false) const;
};
// verify() together with its scope.
[[nodiscard]] OCTAVO_API Verification verify_all(const CheckpointReader& checkpoint,
                                                 const VerifyOptions& options = {});
// As JSON text.
[[nodiscard]] OCTAVO_API std::string json_of(const Verification& verification, bool strict = false);

}  // namespace octavo
