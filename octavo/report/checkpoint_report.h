// What quantizing (or comparing) a checkpoint cost, tensor by tensor, and the ways to show it:
// JSON for programs, one self-contained HTML page for people.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json.h"
#include "octavo/base/macros.h"
#include "octavo/report/metrics.h"

namespace octavo {

struct TensorReport {
  std::string name;    // anything at all: escaped wherever it is shown
  std::string module;  // "model.layers.3.self_attn.q_proj"
  std::vector<std::int64_t> shape;
  std::string source;   // "bfloat16"
  std::string preset;   // "mxfp8"; empty where the tensor was copied
  std::string scaling;  // describe()
  std::string why;      // why it was left alone, or what was planned around
  std::uint64_t bytes_before = 0, bytes_after = 0;
  bool measured = false;
  // With the histogram of values and of codes (of many tensors, only the worst); no rows, no tiles.
  ErrorMetrics metrics{};
  ValueHistogram results{};  // what came back of the values, in the steps of metrics.values
  std::vector<std::int64_t> scale_histogram;  // by exponent: [i] is 2^(i - 127) .. 2^(i - 126)
  // Of advised_presets(), those that the target has words for where this tensor is; nothing: all.
  std::optional<std::vector<std::string_view>> could_have{};
  std::string advice;  // "fp8-block instead of nvfp4 gains 11 dB for 3.9 bits"; may be empty
};

struct OCTAVO_API CheckpointReport {
  std::string title;                                            // the name of the model
  std::string verb = "quantize";                                // or "compare"
  std::string source, output, recipe, target;                   // as the user gave them
  std::vector<std::pair<std::string, std::string>> provenance;  // version, rule, policy, hash ...
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double bits_per_weight = 0;  // of the quantized weights, scales included
  double seconds = 0;
  bool was_complete = false;  // an earlier call had done it all: nothing was done or measured
  std::vector<TensorReport> tensors;  // in the order of names, numbers in names by value
  std::vector<std::string> notes;     // what the user should know

  // Indices of measured tensors, the lowest SQNR first.
  [[nodiscard]] std::vector<std::size_t> worst(std::size_t most) const;
};

[[nodiscard]] OCTAVO_API Json json_of(const CheckpointReport& report);
// The text of json_of(report) with `more` members at its end, a tensor at a time: of many tensors
// the document would be the largest thing in memory.
OCTAVO_API void write_json(const CheckpointReport& report, const Json& more,
                           const std::function<void(std::string_view)>& put);
[[nodiscard]] OCTAVO_API std::string html_of(const CheckpointReport& report);

// What `gain` in decibels and bits another preset would bring, from the metrics alone; "" if none.
// Of advised_presets(), those that tensor.could_have names.
[[nodiscard]] OCTAVO_API std::string advice_for(const TensorReport& tensor);
[[nodiscard]] OCTAVO_API std::span<const std::string_view> advised_presets();

}  // namespace octavo
