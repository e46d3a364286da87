// What quantizing a checkpoint will do, decided before a byte is written: per tensor, per file, with
// sizes. `octavo quantize --dry-run` prints it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect.h"
#include "octavo/quant/scaling.h"

namespace octavo {

struct QuantizePlanOptions {
  std::string recipe = "fp8-block";  // a preset
  Dialect target = Dialect::compressed_tensors;
  // Over what the recipe says, where given; applied to every recipe they fit.
  std::string format, scale_rule, arith, scale_policy, scale_format;
  std::vector<std::string> include, exclude;  // regular expressions on names, searched
  std::vector<std::pair<std::string, std::string>> recipe_for;  // expression, preset or "none"
  bool share = true;                // one scale for what servers fuse: q/k/v, gate/up, experts
  bool bf16_scales = true;          // f32 scales are rounded up to bf16: the same for every loader
  bool clamp_non_finite = false;    // NaN and Inf are an error otherwise
  std::uint64_t shard_bytes = 0;    // 0: as the source
};

struct TensorAction {
  std::size_t tensor = 0;  // of CheckpointReader::tensors()
  bool quantize = false;
  std::string preset;  // "mxfp8"
  std::string why;     // why not quantized, or what was planned around
  QuantizedWeight weight{};  // where quantized
  std::vector<SpelledTensor> outputs;  // what the file gets; a copy has one
  std::size_t file = 0;                // of QuantizePlan::files
  int group = -1;  // actions of one group share amaxes; -1: alone
};

struct QuantizePlan {
  QuantizePlanOptions options;
  std::vector<TensorAction> actions;  // every tensor of the source, in its order
  std::vector<std::string> files;     // "model-00001-of-00002.safetensors"
  QuantizedModel model;
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double bits_per_weight = 0;
  std::vector<std::string> notes;
};

// Throws Error with tensor, reason and the option that would help.
[[nodiscard]] OCTAVO_API QuantizePlan plan_quantize(const CheckpointReader& source,
                                                    const QuantizePlanOptions& options);

}  // namespace octavo
