// Static (calibrated) scales stored beside the weights: input_scale of a layer's activations,
// k_scale and v_scale of the KV cache. One number each, under a name that depends on the dialect
// (StaticScaleNames), if the dialect supports it. Decides which of a source's static scales the
// target dialect can hold.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

// By its name in any dialect: an activation scale; a KV cache scale.
[[nodiscard]] bool is_input_scale(std::string_view name);
[[nodiscard]] bool is_cache_scale(std::string_view name);

// ModelOpt's kv_cache_quant_algo ("FP8") and the file that declares it; "" where neither file does.
[[nodiscard]] std::pair<std::string_view, std::string_view> cache_algorithm(
    const CheckpointReader& checkpoint);

// The KV cache scheme that config.json or hf_quant_config.json declares.
[[nodiscard]] CacheScheme cache_scheme_of(const CheckpointReader& checkpoint);

// The tensor of a static scale, as a dialect stores one.
struct StaticScaleNames;  // dialect_internal.h
[[nodiscard]] DialectTensor static_scale_tensor(const StaticScaleNames& words, std::string name,
                                                float value);

// A static scale as a number, or why it is unusable.
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
  // Reads the static scales that the target supports; none without a target. Weights of one scheme
  // have them all or not at all, because configs declare them per scheme. Throws
  // Error(invalid_argument) for one that is not a positive number.
  StaticScales(const CheckpointReader& source, const Recognized& recognized,
               std::optional<Dialect> target);

  // True if this module has an input scale that the target supports.
  [[nodiscard]] bool has_input(const std::string& module) const { return inputs_.contains(module); }
  // plain where the target does not support the source's scheme.
  [[nodiscard]] CacheScheme cache() const { return cache_; }
  // The target's tensor for a static scale of the source, with its bytes; null for any other
  // tensor.
  [[nodiscard]] const DialectTensor* target_tensor(const std::string& name) const;

 private:
  void find_inputs(const CheckpointReader& source, const Recognized& recognized, Dialect target);
  void find_cache(const CheckpointReader& source, Dialect target);

  std::set<std::string> inputs_;
  CacheScheme cache_ = CacheScheme::plain;
  std::map<std::string, DialectTensor, std::less<>> target_tensors_;  // key: the name in the source
};

}  // namespace octavo
