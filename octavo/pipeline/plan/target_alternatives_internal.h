// Other presets that a weight could have in the same output, so that advice names only what the
// target can hold.
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
  // Of advised_presets(), those that this weight alone could use while the others keep theirs.
  [[nodiscard]] std::vector<std::string_view> of(const QuantizedWeight& weight);

 private:
  [[nodiscard]] bool can_mix(const QuantizedWeight& one, const QuantizedWeight& other);

  Dialect target_;
  std::map<std::pair<std::string, std::string>, bool> mixes_;  // key: descriptions of two scalings
};

}  // namespace octavo
