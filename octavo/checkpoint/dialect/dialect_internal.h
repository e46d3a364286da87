// What the dialects share. Each has a file of its own that ends in a table of functions; to add
// one, write that file and put its table into the list of dialect.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

inline constexpr std::string_view kDialectOp = "checkpoint";

// The kinds of weights that others have words for.
enum class Scheme : std::uint8_t {
  fp8_tensor,
  fp8_channel,
  fp8_block,  // 128 x 128
  mxfp8,
  mxfp6,
  mxfp4,
  nvfp4,
};
// Nothing for any other tile, format or scale. FP8 is e4m3fn or e5m2, MXFP8 e4m3fn, MXFP6 e2m3fn.
[[nodiscard]] std::optional<Scheme> scheme_of(const Scaling& scaling);
[[nodiscard]] std::string_view name_of(Scheme scheme);
[[nodiscard]] constexpr bool is_fp8(Scheme scheme) { return scheme <= Scheme::fp8_block; }

inline constexpr std::int64_t kBlock = 128;

// A weight as [rows, cols], whatever stands before the last dimension.
struct Extent {
  std::int64_t rows = 0, cols = 0;
  std::int64_t matrix_rows = 0;  // of one matrix of a stack
};
[[nodiscard]] Extent extent_of(const QuantizedWeight& weight);

// A weight whose parts do not fit together, for those who want to hear of all of them.
struct Misfit {
  std::string name, reason;
};
using Misfits = std::vector<Misfit>;

// How a dialect calls scales that were found with data: one number each (static_scales_internal.h).
struct StaticWords {
  bool (*takes_input)(std::optional<Scheme>) = nullptr;  // for weights of which kinds; null: none
  std::string_view input{};        // behind the name of a Linear: ".input_scale"
  std::string_view nvfp4_input{};  // for NVFP4, where it divides; empty: as for others
  std::string_view key{},
      value{};         // behind the name of an attention; empty: the cache has no words
  bool scalar = true;  // of the shape [], else [1]
};

struct DialectTable {
  std::string_view name;
  // "" if it can be said; what is common to all is asked before.
  std::string (*why_not)(const QuantizedWeight&);
  std::vector<SpelledTensor> (*spell)(const QuantizedWeight&);
  void (*configure)(const QuantizedModel&, Json& config, Json& hf_quant_config);
  // The weights of a checkpoint that is of this dialect. The first misfit is an Error where there
  // is no list for them.
  std::vector<FoundWeight> (*find)(const CheckpointReader&, Misfits*);
  bool stacks = true;  // takes_stacks()
  StaticWords statics{};
};
[[nodiscard]] const DialectTable& compressed_tensors_dialect();
// Why codes and scales are not all that quantization_config says of weights: transforms, and zeros
// that are left out. "" where they are.
[[nodiscard]] std::string meant_otherwise(const Json& words);
// The same of tensors: scales that activations are multiplied by before they meet a weight, whose
// inverse is in its codes (AWQ, as ModelOpt writes it). "" where there are none.
[[nodiscard]] std::string meant_with_activations(const CheckpointReader& checkpoint);
// The algorithm that ModelOpt's words, of either file, have for a layer or for all, in capitals; ""
// where they have none.
[[nodiscard]] std::string modelopt_algorithm(const Json& words, const std::string& module);
[[nodiscard]] const DialectTable& deepseek_dialect();
[[nodiscard]] const DialectTable& modelopt_dialect();
[[nodiscard]] const DialectTable& comfyui_dialect();
[[nodiscard]] const DialectTable& octavo_dialect();
[[nodiscard]] const DialectTable& table_of(Dialect dialect);

// recognize(), and what does not fit besides.
[[nodiscard]] Recognized recognize_all(const CheckpointReader& checkpoint, Misfits* misfits);

// Pieces of reasons, and of spellings.
[[nodiscard]] std::string shape_text(const std::vector<std::uint64_t>& shape);  // "[2, 3]"
[[nodiscard]] std::string no_words_for(std::string_view dialect, const Scaling& scaling,
                                       std::string_view knows);
[[nodiscard]] std::string not_divisible(std::string_view who, std::string_view what,
                                        std::int64_t size, std::int64_t by);
// Why it is no matrix of a Linear, for loaders that want every expert to be one; "" if it is.
[[nodiscard]] std::string why_no_matrix(const QuantizedWeight& weight);
// Blocks of 128 x 128: why rows cannot be cut into them, "" if they can. Loaders take a last block
// that is cut short, unless another part of a fused matrix follows it (vLLM's
// validate_fp8_block_shape); columns must come out even, as activations have groups of 128.
[[nodiscard]] std::string why_no_blocks(std::string_view who, const QuantizedWeight& weight);
[[nodiscard]] safetensors::TensorPlan plan_tensor(std::string name, safetensors::StoredType type,
                                                  std::initializer_list<std::int64_t> shape);
// The type that FP8 codes have in a file.
[[nodiscard]] safetensors::StoredType fp8_type(const Scaling& scaling);
// Full names of modules, sorted and each once: what skip lists want. "lm_head" is always among them
// unless it is quantized, as loaders make one even where the file has none.
[[nodiscard]] std::vector<std::string> skip_list(const QuantizedModel& model);
[[nodiscard]] Json json_list(const std::vector<std::string>& texts);
// Have its weights of this kind static scales of activations? All of them do, or none.
[[nodiscard]] bool has_static_input(const QuantizedModel& model, Scheme scheme);
// The schemes of a model in the order they first come.
[[nodiscard]] std::vector<Scheme> schemes_of(const QuantizedModel& model);

}  // namespace octavo
