// Scales that somebody found with data and that a checkpoint has beside its weights: of the
// activations of a layer, of keys and of values in the cache. One number each, which every dialect
// has its own name for (StaticWords), if it has one. Which of a source's another dialect can say.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

// By its name, whoever wrote it: of the activations of a layer, of keys or of values.
[[nodiscard]] bool is_input_scale(std::string_view name);
[[nodiscard]] bool is_cache_scale(std::string_view name);

// ModelOpt's name for what the cache is quantized to ("FP8"), and the file that has it; "" where
// neither does.
[[nodiscard]] std::pair<std::string_view, std::string_view> cache_algorithm(
    const CheckpointReader& checkpoint);

// What config.json, or ModelOpt's file beside it, says of the cache.
[[nodiscard]] CacheScheme cache_scheme_of(const CheckpointReader& checkpoint);

// One of them as a number, or why it is none that anybody can compute with.
enum class StaticFault : std::uint8_t { none, type, shape, number };
struct StaticNumber {
  float value = 0;
  StaticFault fault = StaticFault::none;
  std::string reason{};  // "it is -1, wanted a positive number"
};
[[nodiscard]] StaticNumber static_number(const CheckpointReader& checkpoint,
                                         const StoredTensor& tensor);

class StaticScales {
 public:
  // Reads those that the target has words for; without a target there are none. Weights of one kind
  // have them all or not at all, because that is how it is said. Throws Error(invalid_argument) for
  // one that is no positive number.
  StaticScales(const CheckpointReader& source, const Recognized& recognized,
               std::optional<Dialect> target);

  // Is there one for the activations of this module, and can it be said?
  [[nodiscard]] bool has_input(const std::string& module) const { return inputs_.contains(module); }
  // plain where the target has no words for what the source says.
  [[nodiscard]] CacheScheme cache() const { return cache_; }
  // What becomes of a tensor of the source, with its bytes; null for one that is no such scale.
  [[nodiscard]] const SpelledTensor* spelled(const std::string& name) const;

 private:
  void find_inputs(const CheckpointReader& source, const Recognized& recognized, Dialect target);
  void find_cache(const CheckpointReader& source, Dialect target);

  std::set<std::string> inputs_;
  CacheScheme cache_ = CacheScheme::plain;
  std::map<std::string, SpelledTensor, std::less<>> spelled_;  // by the name in the source
};

}  // namespace octavo
