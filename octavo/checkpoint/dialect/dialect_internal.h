// Shared by the dialect implementations. Each dialect is one file that ends in a DialectTable of
// functions; to add one, write that file and add its table to the list in dialect.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/module_role.h"

namespace octavo {

inline constexpr std::string_view kDialectOp = "checkpoint";

// The quantization schemes that other tools' dialects support.
enum class Scheme : std::uint8_t {
  fp8_tensor,
  fp8_channel,
  fp8_block,  // 128 x 128
  mxfp8,
  mxfp6,
  mxfp4,
  nvfp4,
  int8_channel,
  int4_group,  // one of kInt4Groups along a row
};
// nullopt for any other tile, format or scale. FP8 is e4m3fn or e5m2, MXFP8 e4m3fn, MXFP6 e2m3fn.
[[nodiscard]] std::optional<Scheme> scheme_of(const Scaling& scaling);
[[nodiscard]] std::string_view name_of(Scheme scheme);
[[nodiscard]] constexpr bool is_fp8(Scheme scheme) { return scheme <= Scheme::fp8_block; }
// FP8 and integers: scales that are f32 or bf16.
[[nodiscard]] constexpr bool has_float_scales(Scheme scheme) {
  return is_fp8(scheme) || scheme == Scheme::int8_channel || scheme == Scheme::int4_group;
}
// The groups of INT4 that servers have kernels for.
inline constexpr std::array<std::int64_t, 3> kInt4Groups{32, 64, 128};

inline constexpr std::int64_t kBlock = 128;

// A weight as [rows, cols]: all leading dimensions collapsed into rows.
struct Extent {
  std::int64_t rows = 0, cols = 0;
  std::int64_t matrix_rows = 0;  // of one matrix of a stack
};
[[nodiscard]] Extent extent_of(const QuantizedWeight& weight);

// A weight whose parts do not fit together; collected for callers that report all of them.
struct Misfit {
  std::string name, reason;
};
using Misfits = std::vector<Misfit>;

// Tensor names of a dialect's static scales (input_scale, k_scale, v_scale): one number each
// (static_scales_internal.h).
struct StaticScaleNames {
  bool (*takes_input)(std::optional<Scheme>) = nullptr;  // for which schemes; null: none
  std::string_view input{};         // suffix of the Linear's name: ".input_scale"
  std::string_view nvfp4_input{};   // for NVFP4, where it is a divisor; empty: as for others
  std::string_view key{}, value{};  // suffixes of the attention's name; empty: no KV cache support
  bool scalar = true;               // of the shape [], else [1]
};

struct DialectTable {
  std::string_view name;
  // "" if the dialect can hold it; called after the checks common to all dialects.
  std::string (*why_not)(const QuantizedWeight&);
  std::vector<DialectTensor> (*dialect_tensors)(const QuantizedWeight&);
  void (*configure)(const QuantizedModel&, Json& config, Json& hf_quant_config);
  // The weights of a checkpoint in this dialect. Without a list for misfits the first misfit throws
  // Error.
  std::vector<FoundWeight> (*find)(const CheckpointReader&, Misfits*);
  bool stacks = true;  // takes_stacks()
  StaticScaleNames statics{};
};
[[nodiscard]] const DialectTable& compressed_tensors_dialect();
// Why codes and scales alone do not determine the weights, by quantization_config: transform_config
// (Hadamard), sparsity_config. "" where they do.
[[nodiscard]] std::string unsupported_transform(const Json& words);
// The same by tensors: pre_quant_scale (AWQ as ModelOpt exports it), which multiplies activations
// and whose inverse is merged into the codes. "" where there is none.
[[nodiscard]] std::string pre_quant_scale_problem(const CheckpointReader& checkpoint);
// ModelOpt's quant_algo for a module, or for the whole model, from either config file, upper case;
// "" where there is none.
[[nodiscard]] std::string modelopt_algorithm(const Json& words, const std::string& module);
[[nodiscard]] const DialectTable& deepseek_dialect();
[[nodiscard]] const DialectTable& modelopt_dialect();
[[nodiscard]] const DialectTable& comfyui_dialect();
[[nodiscard]] const DialectTable& octavo_dialect();
[[nodiscard]] const DialectTable& gguf_dialect();
// The blocks of a row block, packed as DialectTensor::block_type says (dialect_gguf.cc).
[[nodiscard]] std::vector<std::byte> pack_blocks(const QuantizedTensor& row_block,
                                                 std::string_view block_type);
[[nodiscard]] const DialectTable& table_of(Dialect dialect);

// Adds an unquantized tensor to the model's lists if loaders would otherwise make a quantized layer
// of it (it then goes on the ignore list).
void note_plain(QuantizedModel& model, std::string_view name,
                const std::vector<std::uint64_t>& shape, Role role);
// Writes quantization_config into config (and hf_quant_config, for modelopt). Throws
// Error(unsupported) when the dialect cannot express the model: two schemes where it supports one.
void configure(Dialect dialect, const QuantizedModel& model, Json& config, Json& hf_quant_config);

// recognize() that also collects misfits.
[[nodiscard]] Recognized recognize_all(const CheckpointReader& checkpoint, Misfits* misfits);

// Helpers for reasons and for tensor layouts.
[[nodiscard]] std::string shape_text(const std::vector<std::uint64_t>& shape);  // "[2, 3]"
[[nodiscard]] std::string unsupported_scaling(std::string_view dialect, const Scaling& scaling,
                                              std::string_view knows);
[[nodiscard]] std::string not_divisible(std::string_view loader, std::string_view what,
                                        std::int64_t size, std::int64_t by);
// Why the weight is not the matrix of one Linear, for dialects that need one matrix per expert; ""
// if it is.
[[nodiscard]] std::string why_no_matrix(const QuantizedWeight& weight);
// Why the weight cannot have 128 x 128 blocks; "" if it can. Loaders accept a ragged last block of
// rows unless another part of a fused matrix follows it (vLLM's validate_fp8_block_shape); columns
// must be a multiple of 128, because activations have groups of 128.
[[nodiscard]] std::string why_no_blocks(std::string_view loader, const QuantizedWeight& weight);
[[nodiscard]] safetensors::TensorPlan plan_tensor(std::string name, safetensors::StoredType type,
                                                  std::initializer_list<std::int64_t> shape);
// The safetensors dtype of FP8 and INT8 codes.
[[nodiscard]] safetensors::StoredType byte_code_type(const Scaling& scaling);
// The ignore list: full module names, sorted, without duplicates. Always contains "lm_head" unless
// it is quantized, because loaders create an lm_head even where the file has none.
[[nodiscard]] std::vector<std::string> ignore_list(const QuantizedModel& model);
[[nodiscard]] Json json_list(const std::vector<std::string>& texts);
// Do the weights of this scheme have static activation scales? All of them do, or none.
[[nodiscard]] bool has_static_input(const QuantizedModel& model, Scheme scheme);
// The schemes of a model in order of first occurrence; INT4 with groups of another size counts as
// another one.
struct SchemeUse {
  Scheme scheme;
  std::int64_t group = 0;  // columns of a tile
  constexpr bool operator==(const SchemeUse&) const = default;
};
[[nodiscard]] std::optional<SchemeUse> use_of(const Scaling& scaling);
[[nodiscard]] std::vector<SchemeUse> uses_of(const QuantizedModel& model);
[[nodiscard]] std::vector<Scheme> schemes_of(const QuantizedModel& model);

}  // namespace octavo
