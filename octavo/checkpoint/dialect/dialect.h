// Dialects: the naming schemes and layouts of quantized checkpoints (compressed-tensors, DeepSeek
// fp8, ModelOpt, ComfyUI, octavo, GGUF). For each: which tensors hold one weight, under which
// names, in which types and layouts, and which keys config.json has. Dialects are written
// (dialect_tensors) and read (recognize) here only; docs/numerics/dialects.md documents the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo {

enum class Dialect : std::uint8_t {
  compressed_tensors,
  deepseek,
  modelopt,
  comfyui,
  octavo,
  gguf,  // llama.cpp's file; written here, read by CheckpointReader
};
[[nodiscard]] OCTAVO_API std::string_view name_of(Dialect dialect);
[[nodiscard]] OCTAVO_API Dialect parse_dialect(std::string_view name);  // Error lists the names
[[nodiscard]] OCTAVO_API std::vector<std::string> dialect_names();

// One quantized weight: a matrix [N, K], or a stack of them.
struct QuantizedWeight {
  std::string name;    // of the weight in the unquantized checkpoint, "....up_proj.weight"
  std::string module;  // the same without ".weight"
  Shape shape{};
  DType source = DType::bf16;  // dtype of the unquantized weight; dequantize gives it back
  Scaling scaling{};           // rowwise; per-tensor, per-channel, block or group by tile
  // Static activation quantization: a calibrated input_scale is stored beside the weight.
  bool static_input = false;
};

// Which part of a weight a tensor of the file holds.
enum class Part : std::uint8_t {
  codes,
  scales,
  tensor_scale,  // the second-level (global) scale of NVFP4
  marker,        // describes the others (comfy_quant, weight_shape): constant bytes
  blocks,        // codes and scales, one block after another (GGUF)
};

// One tensor of the file, and its layout where that differs from octavo's.
struct DialectTensor {
  safetensors::TensorPlan plan;  // name, type, shape; a larger shape than the weight's: zero-padded
  Part part = Part::codes;
  std::string constant{};          // the bytes of a marker or of a known number
  bool high_nibble_first = false;  // of two FP4 codes in a byte
  bool plus_eight = false;         // of INT4: each number with 8 added
  bool swizzled = false;           // scales as ScaleLayout::swizzled_128x4
  bool divisor = false;            // a divisor: the reciprocal of octavo's scale
  // In a GGUF file: its type there ("MXFP4"), and the heads within which its rows are interleaved
  // (0: not).
  std::string_view block_type{};
  std::int64_t rope_heads = 0;
};

// The tensors that hold a weight in this dialect. Throws Error(unsupported) with the reason when
// the dialect cannot hold it: an unsupported scaling, a shape that its loaders refuse (ragged 128 x
// 128 blocks).
[[nodiscard]] OCTAVO_API std::vector<DialectTensor> dialect_tensors(Dialect dialect,
                                                                    const QuantizedWeight& weight);
// The reason why the dialect cannot hold the weight; "" if it can.
[[nodiscard]] OCTAVO_API std::string why_not(Dialect dialect, const QuantizedWeight& weight);

// Do its loaders take expert stacks (all experts of a layer in one tensor)? If not, they expect one
// matrix per expert.
[[nodiscard]] OCTAVO_API bool takes_stacks(Dialect dialect);

// Row blocks: rows [first_row, first_row + rows) of a weight in octavo's layout, and the byte
// ranges they become in the file. A stack of matrices counts as one matrix of all their rows, and a
// row block has the shape [rows, K]. Row blocks begin at multiples of row_block_rows(); only the
// last may end elsewhere. Where row_block_rows() is all rows of a matrix, a row block is one
// matrix. Per-tensor parts (a per-tensor scale, a tensor scale, a marker) are written with the row
// block that begins at row 0; padding after the last row with the last row block.
[[nodiscard]] OCTAVO_API std::int64_t row_block_rows(Dialect dialect,
                                                     const QuantizedWeight& weight);
struct RowBlockBytes {
  std::size_t tensor = 0;    // index into the result of dialect_tensors()
  std::uint64_t offset = 0;  // in that tensor
  std::vector<std::byte> bytes;
};
[[nodiscard]] OCTAVO_API std::vector<RowBlockBytes> pack_row_block(
    Dialect dialect, const QuantizedWeight& weight, std::int64_t first_row,
    const QuantizedTensor& row_block);

// The safetensors metadata of a file with these weights ("format": "pt", and the description
// entries of octavo's own files).
[[nodiscard]] OCTAVO_API safetensors::Metadata metadata_of(
    Dialect dialect, const std::vector<QuantizedWeight>& weights);

// KV cache quantization as the config declares it.
enum class CacheScheme : std::uint8_t {
  plain,
  fp8,    // static: one k_scale and one v_scale per layer
  other,  // a scheme that no other dialect can express
};

// The whole model, for config.json: which modules are quantized how, and which are on the ignore
// list.
struct QuantizedModel {
  std::vector<QuantizedWeight> weights;
  std::vector<std::string> plain_modules{};  // unquantized Linears, by name and shape
  std::vector<std::string> plain_holders{};  // modules that hold unquantized expert stacks
  CacheScheme cache = CacheScheme::plain;    // declared where the dialect supports it
};

// A quantized weight found in a checkpoint, with the tensors that hold it.
struct FoundWeight {
  QuantizedWeight weight;
  std::vector<DialectTensor> tensors;  // those present, in the order of dialect_tensors()
};
struct Recognized {
  bool quantized = false;
  Dialect dialect = Dialect::octavo;
  std::vector<FoundWeight> weights;
  std::vector<std::string> plain;  // names of tensors that belong to no quantized weight
};
// Detects the dialect from config.json and tensor names, and assembles the weights. An unquantized
// checkpoint has none; parts that contradict each other throw Error(invalid_argument) that names
// the tensor.
[[nodiscard]] OCTAVO_API Recognized recognize(const CheckpointReader& checkpoint);

// Reads a row block of a found weight into octavo's layout: the inverse of pack_row_block.
[[nodiscard]] OCTAVO_API QuantizedTensor read_row_block(const CheckpointReader& checkpoint,
                                                        Dialect dialect, const FoundWeight& found,
                                                        std::int64_t first_row, std::int64_t rows);

}  // namespace octavo
