// Packs row blocks from octavo's layout into a file's layout, and reads them back. Independent of
// the dialect: a DialectTensor describes the layout.
#include <algorithm>
#include <bit>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/nvfp4_divisor_internal.h"
#include "octavo/convert/widen.h"
#include "octavo/quant/layout.h"
#include "octavo/quant/scale_order.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::int64_t kSwizzleRows = 128;

std::uint64_t bytes_of(const safetensors::TensorPlan& plan) {
  std::uint64_t bits = static_cast<std::uint64_t>(stored_bits(plan.type));
  for (const std::uint64_t size : plan.shape) bits *= size;
  return bits / 8;
}

// The position of a weight's code rows in a file: `rows` rows of `pitch` bytes, the weight's own
// rows first, then padding.
struct CodeRows {
  std::int64_t own_rows = 0, own_pitch = 0;
  std::int64_t rows = 0, pitch = 0;
};
CodeRows code_rows(const QuantizedWeight& weight, const DialectTensor& tensor) {
  const Extent extent = extent_of(weight);
  CodeRows out{.own_rows = extent.rows,
               .own_pitch = packed_row_bytes(extent.cols, weight.scaling.format)};
  // Only matrices are padded, never stacks.
  const auto& shape = tensor.plan.shape;
  const auto bytes = static_cast<std::int64_t>(bytes_of(tensor.plan));
  const bool padded = bytes != out.own_rows * out.own_pitch;
  out.rows = padded ? static_cast<std::int64_t>(shape[0]) : out.own_rows;
  out.pitch = padded ? bytes / out.rows : out.own_pitch;
  return out;
}

void swap_nibbles(std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte = byte >> 4 | byte << 4;
}

// Two's complement of four bits to the number with 8 added, or back: the sign bit flips.
void flip_sign_bits(std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte ^= std::byte{0x88};
}

// The part of the scale grid that belongs to a row block: `cols` scales per grid row, grid rows
// [first, first + rows).
struct ScaleRows {
  bool single = false;  // one per-tensor scale
  std::int64_t cols = 0, first = 0, rows = 0;
};
ScaleRows scale_rows(const QuantizedWeight& weight, std::int64_t first_row, std::int64_t rows) {
  const Scaling& scaling = weight.scaling;
  const Extent extent = extent_of(weight);
  if (scaling.tile == Tile{0, 0}) return {.single = true, .cols = 1, .first = 0, .rows = 1};
  const std::int64_t high = tile_extent(scaling.tile.rows, extent.matrix_rows);
  const std::int64_t per_matrix = tile_count(scaling.tile.rows, extent.matrix_rows);
  const auto row_of = [&](std::int64_t row) {
    return row / extent.matrix_rows * per_matrix + row % extent.matrix_rows / high;
  };
  const std::int64_t first = row_of(first_row);
  return {.cols = tile_count(scaling.tile.cols, extent.cols),
          .first = first,
          .rows = rows == 0 ? 0 : row_of(first_row + rows - 1) + 1 - first};
}

// Scales keep their type where the file's dtype is the same, else are widened to f32.
std::vector<std::byte> scale_bytes(const Tensor& scales, StoredType type) {
  const Tensor stored = type == StoredType::f32 ? widened(scales) : scales;
  return {stored.bytes().begin(), stored.bytes().end()};
}

std::vector<std::byte> float_bytes(float value) {
  std::vector<std::byte> out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

void check_row_block(Dialect dialect, const QuantizedWeight& weight, std::int64_t first_row,
                     std::int64_t rows) {
  const Extent extent = extent_of(weight);
  const std::int64_t step = row_block_rows(dialect, weight);
  const bool last = first_row + rows == extent.rows;
  check(first_row >= 0 && rows >= 0 && first_row + rows <= extent.rows && first_row % step == 0 &&
            (last || rows % step == 0),
        ErrorCode::invalid_argument, kDialectOp, "rows ", first_row, " to ", first_row + rows,
        " of '", shown(weight.name, 200), "', which has ", extent.rows,
        ", are no row block; expected multiples of ", step);
}

std::vector<std::byte> pack_codes(const QuantizedTensor& row_block, const CodeRows& lie,
                                  const DialectTensor& tensor, bool last) {
  const std::span<const std::byte> own = row_block.rowwise.codes.bytes();
  const std::int64_t rows = lie.own_pitch > 0 ? row_block.rowwise.codes.shape()[0] : 0;
  const std::int64_t all = rows + (last ? lie.rows - lie.own_rows : 0);
  std::vector<std::byte> out;
  if (lie.pitch == lie.own_pitch && all == rows) {
    out.assign(own.begin(), own.end());
  } else {
    out.resize(static_cast<std::size_t>(all * lie.pitch));
    for (std::int64_t row = 0; row < rows; ++row)
      std::memcpy(out.data() + row * lie.pitch, own.data() + row * lie.own_pitch,
                  static_cast<std::size_t>(lie.own_pitch));
  }
  if (tensor.high_nibble_first) swap_nibbles(out);
  if (tensor.plus_eight) flip_sign_bits(out);
  return out;
}

}  // namespace

std::int64_t row_block_rows(Dialect dialect, const QuantizedWeight& weight) {
  const Extent extent = extent_of(weight);
  const std::int64_t rows = std::max<std::int64_t>(extent.matrix_rows, 1);
  const Tile tile = weight.scaling.tile;
  const auto scheme = scheme_of(weight.scaling);
  if (dialect == Dialect::comfyui && scheme && !is_fp8(*scheme)) return kSwizzleRows;
  if (tile == Tile{0, 0}) return 1;
  // A tile that ends at the end of a stack's matrix must not continue in the next matrix.
  const bool stack = extent.rows > extent.matrix_rows;
  if (tile.rows == 0 || (stack && tile.rows > 1 && rows % tile.rows != 0)) return rows;
  return tile.rows;
}

std::vector<RowBlockBytes> pack_row_block(Dialect dialect, const QuantizedWeight& weight,
                                          std::int64_t first_row,
                                          const QuantizedTensor& row_block) {
  const std::vector<DialectTensor> tensors = dialect_tensors(dialect, weight);
  const Extent extent = extent_of(weight);
  check(row_block.shape.rank() == 2 && row_block.shape[1] == extent.cols &&
            row_block.rowwise.exists() && row_block.scaling.format == weight.scaling.format &&
            row_block.scaling.tile == weight.scaling.tile,
        ErrorCode::invalid_argument, kDialectOp, "the row block of '", shown(weight.name, 200),
        "' has the shape ", to_string(row_block.shape), " or a scaling of its own");
  const std::int64_t rows = row_block.shape[0];
  check_row_block(dialect, weight, first_row, rows);
  const bool first = first_row == 0, last = first_row + rows == extent.rows;

  std::vector<RowBlockBytes> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DialectTensor& tensor = tensors[i];
    RowBlockBytes piece{.tensor = i, .offset = 0, .bytes = {}};
    switch (tensor.part) {
      case Part::codes: {
        const CodeRows lie = code_rows(weight, tensor);
        piece.offset = static_cast<std::uint64_t>(first_row * lie.pitch);
        piece.bytes = pack_codes(row_block, lie, tensor, last);
        break;
      }
      case Part::scales: {
        const ScaleRows lie = scale_rows(weight, first_row, rows);
        if (lie.single && !first) continue;
        const Tensor ordered = in_order(row_block.rowwise.scales, ScaleOrder::row_major);
        const Tensor scales =
            tensor.swizzled ? to_layout(ordered, ScaleLayout::swizzled_128x4) : ordered;
        piece.bytes = scale_bytes(scales, tensor.plan.type);
        const std::int64_t across = tensor.swizzled ? (lie.cols + 3) / 4 * 4 : lie.cols;
        piece.offset = static_cast<std::uint64_t>(lie.first * across) *
                       static_cast<std::uint64_t>(stored_bits(tensor.plan.type)) / 8;
        break;
      }
      case Part::tensor_scale: {
        if (!first) continue;
        const float scale = row_block.rowwise.tensor_scale.span<float>()[0];
        piece.bytes = float_bytes(tensor.divisor ? divisor_of(scale, weight.source) : scale);
        break;
      }
      case Part::blocks: {
        piece.offset = static_cast<std::uint64_t>(first_row) * tensor.plan.shape.back();
        piece.bytes = pack_blocks(row_block, tensor.block_type);
        break;
      }
      case Part::marker: {
        if (!first) continue;
        const auto bytes = std::as_bytes(std::span(tensor.constant));
        piece.bytes.assign(bytes.begin(), bytes.end());
        break;
      }
    }
    if (!piece.bytes.empty()) out.push_back(std::move(piece));
  }
  return out;
}

namespace {

void read_codes(const CheckpointReader& checkpoint, const StoredTensor& stored,
                const DialectTensor& tensor, const CodeRows& lie, std::int64_t first_row,
                const Tensor& into) {
  const std::span<std::byte> own = into.bytes();
  const std::int64_t rows = into.shape()[0];
  const auto offset = static_cast<std::uint64_t>(first_row * lie.pitch);
  if (lie.pitch == lie.own_pitch) {
    if (!own.empty()) checkpoint.read(stored, offset, own);
  } else if (rows > 0) {
    std::vector<std::byte> padded(static_cast<std::size_t>(rows * lie.pitch));
    checkpoint.read(stored, offset, padded);
    for (std::int64_t row = 0; row < rows; ++row)
      std::memcpy(own.data() + row * lie.own_pitch, padded.data() + row * lie.pitch,
                  static_cast<std::size_t>(lie.own_pitch));
  }
  if (tensor.plus_eight) flip_sign_bits(own);
  if (!tensor.high_nibble_first) return;
  swap_nibbles(own);
  // With an odd number of columns, a padding code shares a byte with the row's last code.
  if (into.shape()[1] % 2 != 0)
    for (std::int64_t row = 0; row < rows; ++row)
      own[static_cast<std::size_t>((row + 1) * lie.own_pitch - 1)] &= std::byte{0x0F};
}

void read_scales(const CheckpointReader& checkpoint, const StoredTensor& stored,
                 const DialectTensor& tensor, const ScaleRows& lie, const Tensor& into) {
  if (into.bytes().empty()) return;
  if (!tensor.swizzled) {
    const auto size = static_cast<std::uint64_t>(stored_bits(tensor.plan.type)) / 8;
    checkpoint.read(stored, static_cast<std::uint64_t>(lie.first * lie.cols) * size, into.bytes());
    return;
  }
  const Tensor blocks =
      Tensor::codes(layout_shape(into.shape(), ScaleLayout::swizzled_128x4), into.format());
  checkpoint.read(stored, static_cast<std::uint64_t>(lie.first * ((lie.cols + 3) / 4 * 4)),
                  blocks.bytes());
  const Tensor grid = from_layout(blocks, ScaleLayout::swizzled_128x4, into.shape());
  std::memcpy(into.bytes().data(), grid.bytes().data(), into.bytes().size());
}

float read_float(const CheckpointReader& checkpoint, const StoredTensor& stored) {
  const auto type = safetensors::element_type(stored.entry->type);
  check(type && is_value(type->dtype) && type->dtype != DType::f64 &&
            stored.nbytes() == static_cast<std::uint64_t>(element_bytes(type->dtype)),
        ErrorCode::invalid_argument, kDialectOp, "'", shown(stored.name(), 200), "' is ",
        stored_name(stored.entry->type), " of ", stored.nbytes(), " bytes; expected one number");
  const Tensor value = Tensor::values({1}, type->dtype);
  checkpoint.read(stored, 0, value.bytes());
  return widened(value).span<float>()[0];
}

}  // namespace

QuantizedTensor read_row_block(const CheckpointReader& checkpoint, Dialect dialect,
                               const FoundWeight& found, std::int64_t first_row,
                               std::int64_t rows) {
  const QuantizedWeight& weight = found.weight;
  check_row_block(dialect, weight, first_row, rows);
  QuantizedTensor row_block =
      make_quantized({rows, extent_of(weight).cols}, weight.source, weight.scaling);
  for (const DialectTensor& tensor : found.tensors) {
    const StoredTensor& stored = checkpoint.at(tensor.plan.name);
    if (tensor.part == Part::codes)
      read_codes(checkpoint, stored, tensor, code_rows(weight, tensor), first_row,
                 row_block.rowwise.codes);
    if (tensor.part == Part::scales)
      read_scales(checkpoint, stored, tensor, scale_rows(weight, first_row, rows),
                  row_block.rowwise.scales);
    if (tensor.part == Part::tensor_scale) {
      const float scale = read_float(checkpoint, stored);
      row_block.rowwise.tensor_scale.span<float>()[0] =
          tensor.divisor ? multiplier_of(scale, weight.source) : scale;
    }
  }
  try {
    check_scales(row_block);
  } catch (const Error& error) {
    fail(ErrorCode::invalid_argument, kDialectOp, "'", shown(weight.name, 200),
         "': ", reason_of(error));
  }
  return row_block;
}

}  // namespace octavo
