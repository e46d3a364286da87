// What quantizing a checkpoint will do, decided before a byte is written: per tensor, per file,
// with sizes. `octavo quantize --dry-run` prints it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/quant/scaling.h"

namespace octavo {

struct QuantizePlanOptions {
  std::string recipe = "fp8-block";  // a preset
  Dialect target = Dialect::compressed_tensors;
  // Over what the recipe says, where given; applied to every recipe they fit.
  // The rule of mxfp4 is `even` unless scale_rule or a peer's arith says otherwise: its rounding
  // saturates the largest of few codes and errs less on the rest (docs/numerics/scales.md).
  std::string format{}, scale_rule{}, arith{}, scale_policy{}, scale_format{};
  // Regular expressions (base/pattern.h) that are searched for in names. What `include` finds is
  // quantized whatever it is, and nothing else is; one that finds nothing is an error. What
  // `exclude` finds is not quantized. The first of recipe_for that is found decides: a preset, or
  // "none". A tensor that include or recipe_for names and the target cannot hold is an error;
  // others are left as they are, with a note. What servers load as one (q/k/v, gate/up, experts of
  // a layer) is decided as one, for targets that servers load.
  std::vector<std::string> include{}, exclude{};
  std::vector<std::pair<std::string, std::string>> recipe_for{};
  bool share = true;  // one scale for what servers fuse: q/k/v, gate/up, experts
  // f32 scales get the precision of bf16: the same product in every loader. Nearest, and nothing
  // saturates by it: 2^-8 is far less than the half step that the largest code has above it.
  bool bf16_scales = true;
  bool clamp_non_finite = false;  // NaN and Inf are an error otherwise
  std::uint64_t shard_bytes = 0;  // 0: as the source
};

// Which part of a tensor becomes a weight: all of it, or some rows of one matrix of a stack.
struct SourcePart {
  std::int64_t matrix = -1;  // -1: all
  std::int64_t first = 0;    // the first row of [out, in]
  bool transposed = false;   // the stack is [experts, in, out]
};

// Why a tensor is left as it is; TensorAction::why has the words.
enum class SkipReason : std::uint8_t {
  no,  // it is quantized
  by_role,
  excluded,
  not_included,
  recipe_none,
  impossible,      // the target cannot hold it
  with_its_group,  // what servers load as one with it is left
};

// What becomes of a tensor. A stack of experts that is taken apart has one for each weight, in a
// row.
struct TensorAction {
  std::size_t tensor = 0;  // of CheckpointReader::tensors()
  SourcePart part{};
  bool quantize = false;
  std::string preset{};  // "mxfp8"
  SkipReason left = SkipReason::no;
  std::string why{};         // why it is left, or what was planned around
  QuantizedWeight weight{};  // where quantized
  Scaling scaling{};         // what it is quantized with: weight.scaling, but for bf16 scales
  // Where the source is quantized already: its codes are spelled anew (quantize), or decoded to
  // weight.source (not).
  std::shared_ptr<const FoundWeight> found{};
  std::vector<DialectTensor> outputs{};  // what the file gets; a copy has one
  // A weight that is decoded into a stack of experts: the action that has the stack among its
  // outputs. This one has none, and `part` says where in the stack it lies, of both.
  std::optional<std::size_t> joins{};
  std::size_t file = 0;  // of QuantizePlan::files
  int group = -1;        // actions of one group share amaxes; -1: alone
};

// What it gets in the file, in bytes; and the name of what it does that for.
[[nodiscard]] OCTAVO_API std::uint64_t bytes_after(const TensorAction& action);
[[nodiscard]] OCTAVO_API const std::string& name_of(const CheckpointReader& source,
                                                    const TensorAction& action);

struct QuantizePlan {
  QuantizePlanOptions options;
  std::vector<TensorAction> actions;  // every tensor of the source, in its order
  std::vector<std::string> files;     // "model-00001-of-00002.safetensors"
  std::string index_name;             // empty: one file and no index
  std::string config_dtype;           // what config.json is to say weights are; empty: as it is
  int groups = 0;
  QuantizedModel model;
  Dialect source_dialect = Dialect::octavo;  // where actions have found weights
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double bits_per_weight = 0;
  std::vector<std::string> notes;
};

// What can be said of options without a checkpoint. Throws Error(invalid_argument) or
// Error(unsupported).
OCTAVO_API void check_plan_options(const QuantizePlanOptions& options);
// And what names say: an expression of `include` that no tensor has is an error.
OCTAVO_API void check_plan_options(const QuantizePlanOptions& options,
                                   const CheckpointReader& source);

// All of it as JSON text, for programs to read.
[[nodiscard]] OCTAVO_API std::string json_of(const CheckpointReader& source,
                                             const QuantizePlan& plan);

// Throws Error with tensor, reason and the option that would help. Messages of this room name
// options as "option recipe_for", whoever calls; a program puts its own words for that.
[[nodiscard]] OCTAVO_API QuantizePlan plan_quantize(const CheckpointReader& source,
                                                    const QuantizePlanOptions& options);

}  // namespace octavo
