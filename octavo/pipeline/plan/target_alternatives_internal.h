// Which other presets a weight could have in the same output: advice that a target cannot follow is
// none.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

class TargetAlternatives {
 public:
  explicit TargetAlternatives(Dialect target) : target_(target) {}
  // Of advised_presets(), what this weight alone could have, beside others that stay as they are.
  [[nodiscard]] std::vector<std::string_view> of(const QuantizedWeight& weight);

 private:
  [[nodiscard]] bool can_mix(const QuantizedWeight& one, const QuantizedWeight& other);

  Dialect target_;
  std::map<std::pair<std::string, std::string>, bool> mixes_;  // of descriptions
};

}  // namespace octavo
