// How others spell a quantized checkpoint: which tensors stand for one weight, under which names,
// in which types and layouts, and what config.json says about them. A dialect is written (spell,
// configure) and read (recognize) here, and nowhere else; docs/numerics/dialects.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo {

enum class Dialect : std::uint8_t { compressed_tensors, deepseek, modelopt, comfyui, octavo };
[[nodiscard]] OCTAVO_API std::string_view name_of(Dialect dialect);
[[nodiscard]] OCTAVO_API Dialect parse_dialect(std::string_view name);  // Error lists the names
[[nodiscard]] OCTAVO_API std::vector<std::string> dialect_names();

// One weight that is (to be) quantized: a matrix [N, K], or a stack of them.
struct QuantizedWeight {
  std::string name;    // of the weight in the unquantized checkpoint, "....up_proj.weight"
  std::string module;  // the same without ".weight"
  Shape shape{};
  DType source = DType::bf16;  // what it was, and what dequantize makes of it
  Scaling scaling{};           // rowwise; tile, format and scale say the rest
  // What it is multiplied with has one scale that was found with data, and that stands beside it.
  bool static_input = false;
};

// What part of a weight a tensor of the file holds.
enum class Part : std::uint8_t {
  codes,
  scales,
  tensor_scale,  // the second level
  marker,        // says what the others are (comfy_quant): constant bytes
};

// One tensor of the file, and how its bytes lie where that is not as octavo has them.
struct SpelledTensor {
  safetensors::TensorPlan plan;  // name, type, shape; a shape beyond the weight's is padded with 0
  Part part = Part::codes;
  std::string constant{};          // the bytes of a marker, or of a number that is known
  bool high_nibble_first = false;  // of two FP4 codes in a byte
  bool swizzled = false;           // scales as ScaleLayout::swizzled_128x4
  bool divisor = false;            // values are divided by it: it is the reciprocal of ours
};

// The tensors that stand for a weight. Throws Error(unsupported) with the reason when the dialect
// cannot say it: a scaling it has no words for, a shape its loaders refuse (ragged 128 x 128).
[[nodiscard]] OCTAVO_API std::vector<SpelledTensor> spell(Dialect dialect,
                                                          const QuantizedWeight& weight);
// Can it, and if not, why not ("" if it can).
[[nodiscard]] OCTAVO_API std::string why_not(Dialect dialect, const QuantizedWeight& weight);

// Do its loaders find all experts of a layer in one tensor? Where not, they want a matrix for each.
[[nodiscard]] OCTAVO_API bool takes_stacks(Dialect dialect);

// Rows [first_row, first_row + rows) of a weight, as octavo has them, and where their bytes go. A
// stack of matrices is one matrix of all their rows, and a band has the shape [rows, K]. Bands
// begin at multiples of band_rows(); only the last may end elsewhere. Where band_rows() is all rows
// of a matrix, a band is one matrix. What there is one of (a scale per tensor, a tensor scale, a
// marker) is written with the band that begins at row 0; padding behind the last row with the last
// band.
[[nodiscard]] OCTAVO_API std::int64_t band_rows(Dialect dialect, const QuantizedWeight& weight);
struct BandBytes {
  std::size_t tensor = 0;    // index into spell()'s result
  std::uint64_t offset = 0;  // in that tensor
  std::vector<std::byte> bytes;
};
[[nodiscard]] OCTAVO_API std::vector<BandBytes> spell_band(Dialect dialect,
                                                           const QuantizedWeight& weight,
                                                           std::int64_t first_row,
                                                           const QuantizedTensor& band);

// What the metadata of a file with these weights say ("format": "pt", and what octavo's own files
// say of themselves).
[[nodiscard]] OCTAVO_API safetensors::Metadata metadata_of(
    Dialect dialect, const std::vector<QuantizedWeight>& weights);

// What is said of the cache of keys and values.
enum class CacheScheme : std::uint8_t {
  plain,
  fp8,    // with one static scale for the keys of a layer and one for its values
  other,  // something that only the source has words for
};

// The model as a whole, for config.json: what is quantized how, and what is not.
struct QuantizedModel {
  std::vector<QuantizedWeight> weights;
  std::vector<std::string> plain_modules{};  // Linears (by name and shape) that stay as they are
  std::vector<std::string> plain_holders{};  // those that have stacks of experts which do
  CacheScheme cache = CacheScheme::plain;    // said where the dialect has words for it
};
// Notes a tensor that stays as it is, if it is one that loaders would make a quantized layer of
// unless they are told not to.
OCTAVO_API void note_plain(QuantizedModel& model, std::string_view name,
                           const std::vector<std::uint64_t>& shape, Role role);
// Changes config (and hf_quant_config, for modelopt) as the dialect's loaders want it. Throws
// Error(unsupported) when the dialect cannot say it: weights of two kinds where it knows one.
OCTAVO_API void configure(Dialect dialect, const QuantizedModel& model, Json& config,
                          Json& hf_quant_config);

// A weight found in a checkpoint, with the tensors that hold it.
struct FoundWeight {
  QuantizedWeight weight;
  std::vector<SpelledTensor> tensors;  // those the file has, in spell()'s order
};
struct Recognized {
  bool quantized = false;
  Dialect dialect = Dialect::octavo;
  std::vector<FoundWeight> weights;
  std::vector<std::string> plain;  // names of tensors that are no part of a quantized weight
};
// From config and names. A checkpoint that is not quantized has no weights; one whose parts
// contradict each other throws Error(invalid_argument) that names the tensor.
[[nodiscard]] OCTAVO_API Recognized recognize(const CheckpointReader& checkpoint);

// A band of a found weight, read as octavo has it: the opposite of spell_band.
[[nodiscard]] OCTAVO_API QuantizedTensor read_band(const CheckpointReader& checkpoint,
                                                   Dialect dialect, const FoundWeight& found,
                                                   std::int64_t first_row, std::int64_t rows);

}  // namespace octavo
