// InputStatistics: what is known of the activations that enter the Linears of a model, as
// quantize_checkpoint asks for it: weights of errors (policy wmse), static input scales, ranges of
// keys and values. model/statistics/input_statistics_file.h has the one that reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Of the input of one Linear.
struct InputRange {
  std::int64_t width = 0;       // channels
  std::int64_t rows = 0;        // tokens it has seen; 0 for an expert that none was routed to
  std::optional<float> amax{};  // of all channels; not known of imatrix files
};

// Of the keys and values of an attention, over all heads.
struct CacheRange {
  std::string module{};  // "model.layers.0.self_attn"
  float k_amax = 0.0F, v_amax = 0.0F;
};

class InputStatistics {
 public:
  virtual ~InputStatistics() = default;
  // For messages; and what tells its contents from others, for what is resumed.
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::string identity() const = 0;
  // Null where there is nothing about the module, which is named as its weight without ".weight".
  [[nodiscard]] virtual std::optional<InputRange> range_of(std::string_view module) const = 0;
  // E[x^2] of every channel of a module that has a range. From any thread.
  [[nodiscard]] virtual std::vector<float> mean_square(std::string_view module) const = 0;
  [[nodiscard]] virtual std::vector<CacheRange> caches() const = 0;
  // What the file has that is of no use, by name: reports say it.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace octavo
