// Other presets that a weight could have in the same output, so that advice names only what the
// target can hold and what takes the model from no loader.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

class TargetAlternatives {
 public:
  // `source` is the model that is quantized; its config.json says what loaders make of it.
  TargetAlternatives(const CheckpointReader& source, Dialect target)
      : source_(source), target_(target) {}
  // Of advised_presets(), those that this weight alone could use while the others keep theirs, and
  // with which every loader that loads them now still does.
  [[nodiscard]] std::vector<std::string_view> of(const QuantizedWeight& weight);

 private:
  [[nodiscard]] std::vector<std::string> loaders_of(std::vector<QuantizedWeight> weights) const;
  [[nodiscard]] bool can_be(const QuantizedWeight& weight, const QuantizedWeight& other) const;

  const CheckpointReader& source_;
  Dialect target_;
  // Key: scaling, shape, and name without numbers.
  std::map<std::string, std::vector<std::string_view>> known_;
};

}  // namespace octavo
