// QuantizePlan: the plan for quantizing a checkpoint, made before a byte is written: per tensor,
// per shard, with sizes. `octavo quantize --dry-run` prints it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/pipeline/plan/input_statistics.h"
#include "octavo/quant/scaling.h"

namespace octavo {

// Static scales: none; of statistics of the model's inputs; or 1, as some publishers ship them.
enum class StaticScaleSource : std::uint8_t { none, statistics, one };
[[nodiscard]] OCTAVO_API std::string_view name_of(StaticScaleSource source);
[[nodiscard]] OCTAVO_API StaticScaleSource parse_static_scale_source(std::string_view name);

struct QuantizePlanOptions {
  // A preset, or one of mixed_recipe_names(). Empty: chosen by the model, fp8-block, or fp8-channel
  // where blocks do not fit a tenth of it (for comfyui fp8); plan.options has the one that was
  // chosen.
  std::string recipe{};
  Dialect target = Dialect::compressed_tensors;
  // Overrides of the recipe, where given; applied to every recipe they fit. The rule of mxfp4 is
  // `even` unless scale_rule or a peer's arith overrides it: its rounding saturates the largest of
  // few codes and has a smaller error on the rest (docs/numerics/scales.md).
  // tile: "1x64", or "64" in the form of the recipe's own (parse_block). The format "auto": e4m3fn
  // or e5m2, for each tensor the one with the smaller squared error.
  std::string format{}, tile{}, scale_rule{}, arith{}, scale_policy{}, scale_format{};
  // Regular expressions (base/pattern/pattern.h), searched anywhere in tensor names. `include`:
  // quantizes exactly the tensors that match, whatever their role; one without a match is an error.
  // `exclude`: matching tensors stay unquantized. recipe_for: the first match decides: a preset, or
  // "none". A matrix that include or recipe_for matches and that the target cannot hold is an
  // error; other such tensors stay unquantized, with a note, and so do those that include matches
  // and no recipe could quantize (norms, biases). What servers load as one (fused QKV,
  // gate_up, experts of a layer) is decided together, for targets that servers load.
  std::vector<std::string> include{}, exclude{};
  std::vector<std::pair<std::string, std::string>> recipe_for{};
  bool share = true;  // shared scales for what servers fuse: q/k/v, gate/up, experts
  // f32 scales are rounded to bf16 precision, so that the product is the same in every loader.
  // Rounding is to nearest, and nothing saturates by it: 2^-8 is far less than the half step above
  // the largest code.
  bool bf16_scales = true;
  bool clamp_non_finite = false;  // clamp NaN and Inf instead of an error
  std::uint64_t shard_bytes = 0;  // 0: the source's shards
  // Of what enters the Linears, for scale_policy wmse and for static scales. Those of inputs are
  // written beside every weight whose scheme has them in the target (fp8, fp8-channel,
  // int8-channel, nvfp4): servers then quantize inputs by them, where they would scale each token
  // or leave inputs as they are (nvfp4). Those of keys and values declare a KV cache in FP8.
  std::shared_ptr<const InputStatistics> statistics{};
  StaticScaleSource input_scales = StaticScaleSource::none, kv_scales = StaticScaleSource::none;
};

// The part of a source tensor that becomes a weight: the whole, or some rows of one matrix of an
// expert stack.
struct SourcePart {
  std::int64_t matrix = -1;  // -1: the whole tensor
  std::int64_t first = 0;    // the first row of [out, in]
  bool transposed = false;   // the stack is [experts, in, out]
};

// Why a tensor stays unquantized; TensorAction::why has the text.
enum class SkipReason : std::uint8_t {
  no,  // it is quantized
  by_role,
  excluded,
  not_included,
  recipe_none,
  impossible,      // the target cannot hold it
  no_weight,       // include finds it, and it is no matrix of numbers: a norm, a bias
  with_its_group,  // a tensor that servers load together with it stays unquantized
};

// The action for a tensor. A split expert stack has one action per weight, in sequence.
struct TensorAction {
  std::size_t tensor = 0;  // index into CheckpointReader::tensors()
  SourcePart part{};
  bool quantize = false;
  std::string preset{};  // "mxfp8"
  SkipReason left = SkipReason::no;
  std::string why{};         // why it stays unquantized, or what the plan works around
  QuantizedWeight weight{};  // if quantized
  Scaling scaling{};         // used for quantizing: weight.scaling, except for bf16 scales
  // For a quantized source: its codes are written in the target's layout (quantize), or decoded to
  // weight.source (not quantize).
  std::shared_ptr<const FoundWeight> found{};
  // Tensors in the output file: a copy's one, or those of dialect_tensors(weight); and after those
  // the static scales that are written with them.
  std::vector<DialectTensor> outputs{};
  // A weight that is decoded into a merged expert stack: the index of the action that has the stack
  // among its outputs. This action has no outputs, and in both `part` is the position in the stack.
  std::optional<std::size_t> joins{};
  std::size_t file = 0;  // index into QuantizePlan::files
  int group = -1;        // actions of one group share an amax; -1: none
};

// The action's bytes in the output file; and the name of its weight.
[[nodiscard]] OCTAVO_API std::uint64_t bytes_after(const TensorAction& action);
[[nodiscard]] OCTAVO_API const std::string& name_of(const CheckpointReader& source,
                                                    const TensorAction& action);

// What a GGUF file has besides tensors of the source.
struct GgufParts {
  std::string metadata;  // as bytes of the file
  std::uint64_t keys = 0;
  std::vector<DialectTensor> constants;  // tensors with constant bytes
};

struct QuantizePlan {
  QuantizePlanOptions options;
  std::vector<TensorAction> actions;  // for every tensor of the source, in its order
  std::vector<std::string> files;     // "model-00001-of-00002.safetensors"
  std::string index_name;             // empty: a single file without index
  std::string config_dtype;           // dtype to write into config.json; empty: unchanged
  int groups = 0;
  QuantizedModel model;
  std::shared_ptr<const GgufParts> gguf{};   // target gguf; else null
  Dialect source_dialect = Dialect::octavo;  // if actions have found weights
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double bits_per_weight = 0;
  std::vector<std::string> notes;
};

// Recipes that are several presets, as publishers use them: "experts-nvfp4" (routed experts in
// NVFP4, all else as it is) and "attention-fp8" (attention in FP8, all else in NVFP4).
[[nodiscard]] OCTAVO_API std::vector<std::string> mixed_recipe_names();
[[nodiscard]] OCTAVO_API bool is_mixed_recipe(std::string_view name);
// Such a recipe as a preset, and expressions in recipe_for behind the user's own; other options as
// they are.
[[nodiscard]] OCTAVO_API QuantizePlanOptions spelled_out(QuantizePlanOptions options);

// Checks options without a checkpoint. Throws Error(invalid_argument) or Error(unsupported).
OCTAVO_API void check_plan_options(const QuantizePlanOptions& options);
// Also checks them against tensor names: an `include` expression without a match is an error.
OCTAVO_API void check_plan_options(const QuantizePlanOptions& options,
                                   const CheckpointReader& source);

// The complete plan as JSON.
[[nodiscard]] OCTAVO_API std::string json_of(const CheckpointReader& source,
                                             const QuantizePlan& plan);

// Throws Error with tensor, reason and the option that would help. Messages of this room name
// options as "option recipe_for" for every caller; the program replaces that by its flags.
[[nodiscard]] OCTAVO_API QuantizePlan plan_quantize(const CheckpointReader& source,
                                                    const QuantizePlanOptions& options);

}  // namespace octavo
