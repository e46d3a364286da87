// Assembles a weight from its tensors by their types and shapes.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/quant/layout.h"

namespace octavo {
namespace {

using safetensors::StoredType;
using safetensors::TensorEntry;

constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 48;

// Keys of config.json, at the top level or within text_config.
constexpr std::array<std::string_view, 2> kQuantizationKeys{"quantization_config",
                                                            "compression_config"};

std::string shown_entry(const TensorEntry& entry) {
  return text(stored_name(entry.type), " ", shape_text(entry.shape));
}

// A shape that octavo supports; sizes are bounded so that arithmetic on them cannot overflow.
std::optional<Shape> shape_of(const TensorEntry& entry) {
  if (entry.shape.size() > kMaxRank) return std::nullopt;
  for (const std::uint64_t size : entry.shape)
    if (size > kMaxSize) return std::nullopt;
  std::vector<std::int64_t> sizes(entry.shape.begin(), entry.shape.end());
  return Shape(std::span<const std::int64_t>(sizes));
}

// A scale grid without dimensions of size 1: [N], [N, 1] and [N, 1, 1] hold the same numbers in the
// same order, [2, 3] and [3, 2] do not.
std::vector<std::int64_t> squeezed(const Shape& grid) {
  std::vector<std::int64_t> out;
  for (const std::int64_t size : grid.sizes())
    if (size != 1) out.push_back(size);
  return out;
}

// Candidate tiles, likeliest first: the grid size decides, and a grid of the same shape comes
// before others.
Scaling byte_scaling(const FoundParts& parts, const Shape& shape, std::int64_t scales,
                     const Format& format, ScaleFormat scale) {
  Scaling scaling{.format = format, .scale = {.format = scale}};
  if (scale == ScaleFormat::e8m0 || parts.powers) scaling.scale.rule = ScaleRule::rceil;
  const std::size_t rank = parts.scales->entry->shape.size();
  const auto& sizes = parts.scales->entry->shape;
  // Per-channel scales are one column; a block grid may have as many entries.
  const bool column = rank <= 1 || sizes.back() == 1;
  std::vector<Tile> tiles = parts.declared;
  if (scale == ScaleFormat::e8m0) tiles.push_back({1, 32});
  if (rank <= 1) tiles.push_back({0, 0});
  if (column) tiles.push_back({1, 0});
  for (const Tile tile : {Tile{kBlock, kBlock}, Tile{0, 0}, Tile{1, kBlock}}) tiles.push_back(tile);
  const auto has = squeezed(*shape_of(*parts.scales->entry));
  Tile by_count{-1, -1};
  for (const Tile tile : tiles) {
    scaling.tile = tile;
    if (tile.rows < 0 || tile.cols < 0) continue;
    const Shape grid = scale_shape(shape, scaling);
    if (squeezed(grid) == has) return scaling;
    if (by_count.rows < 0 && element_count(grid) == scales) by_count = tile;
  }
  scaling.tile = by_count;
  return scaling;
}

[[noreturn]] void misfit(const FoundParts& parts, std::string_view what) {
  fail(ErrorCode::invalid_argument, kDialectOp, "'", shown(parts.name, 200), "': its codes are ",
       shown_entry(*parts.codes->entry), " and its scales ",
       parts.scales != nullptr ? shown_entry(*parts.scales->entry) : "not there", ": ", what);
}

// Packed codes are FP4 or FP6; the number of scales tells which.
struct Packed {
  Shape shape;
  Scaling scaling;
};
Packed packed_weight(const FoundParts& parts, const Shape& bytes, std::int64_t scales,
                     ScaleFormat scale) {
  const int last = bytes.rank() - 1;
  const std::int64_t in_row = bytes[last];
  const auto logical = [&](std::int64_t cols) {
    Shape shape = bytes;
    shape[last] = cols;
    return parts.shape.value_or(shape);
  };
  const bool nibbles = parts.codes->entry->type == StoredType::f4;
  if (scale == ScaleFormat::e4m3_f32)
    return {logical(nibbles ? in_row : in_row * 2), preset("nvfp4")};
  if (scale != ScaleFormat::e8m0) misfit(parts, "expected scales of one byte for codes of FP4");
  const Packed four{logical(nibbles ? in_row : in_row * 2), preset("mxfp4")};
  if (in_row % 3 == 0 && !nibbles) {
    const Packed six{logical(in_row / 3 * 4), preset("mxfp6")};
    if (element_count(scale_shape(six.shape, six.scaling)) == scales &&
        element_count(scale_shape(four.shape, four.scaling)) != scales)
      return six;
  }
  return four;
}

// Checks that the file has all bytes of a weight of this shape and scaling.
void check_sizes(const FoundParts& parts, const QuantizedWeight& weight, std::int64_t scales) {
  const Shape grid = scale_shape(weight.shape, weight.scaling);
  const std::int64_t wanted = parts.swizzled
                                  ? element_count(layout_shape(grid, ScaleLayout::swizzled_128x4))
                                  : element_count(grid);
  if (wanted != scales)
    misfit(parts, text("expected ", wanted, " scales for ", describe(weight.scaling), " of ",
                       to_string(weight.shape)));
  if (!parts.swizzled && squeezed(grid) != squeezed(*shape_of(*parts.scales->entry)))
    misfit(parts, text("expected scales of the shape ", to_string(grid), " for ",
                       describe(weight.scaling), " of ", to_string(weight.shape)));
  const std::int64_t codes = dense_bytes(weight.shape, DType::code, weight.scaling.format,
                                         weight.scaling.format.bits() < 8);
  const auto has = static_cast<std::int64_t>(parts.codes->nbytes());
  if (parts.shape ? has < codes : has != codes) misfit(parts, text("expected ", codes, " bytes"));
  const bool two_levels = weight.scaling.scale.format == ScaleFormat::e4m3_f32;
  if (two_levels && parts.tensor_scale == nullptr)
    misfit(parts, "the tensor's own scale is missing");
}

}  // namespace

bool holds_fp8(const StoredTensor& tensor) {
  return tensor.entry->type == StoredType::f8_e4m3 || tensor.entry->type == StoredType::f8_e5m2;
}

bool holds_codes(const StoredTensor& tensor) {
  constexpr std::array kBytes{StoredType::u8, StoredType::i8, StoredType::f4};
  return holds_fp8(tensor) ||
         std::find(kBytes.begin(), kBytes.end(), tensor.entry->type) != kBytes.end();
}

const Json& quantization_config(const Json& config) {
  for (const std::string_view key : kQuantizationKeys) {
    if (config[key].is_object()) return config[key];
    if (config["text_config"][key].is_object()) return config["text_config"][key];
  }
  return config["quantization_config"];
}

void remove_quantization_config(Json& config) {
  Json inner = config["text_config"];
  bool any = false;
  for (const std::string_view key : kQuantizationKeys) {
    config.remove(key);
    if (!inner.has(key)) continue;
    inner.remove(key);
    any = true;
  }
  if (any) config.set("text_config", std::move(inner));
}

DType source_type(const CheckpointReader& checkpoint) {
  const Json& config = checkpoint.config();
  for (const Json* const place : {&config, &config["text_config"]})
    for (const std::string_view key : {"dtype", "torch_dtype"}) {
      const std::string_view name = (*place)[key].string_or("");
      for (const DType type : {DType::bf16, DType::f16, DType::f32})
        if (name == dtype_name(type)) return type;
    }
  std::array<std::int64_t, 3> bytes{};
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const bool is_scale = tensor.name().find("scale") != std::string::npos;
    if (is_scale) continue;
    const auto count = static_cast<std::int64_t>(tensor.nbytes());
    if (tensor.entry->type == StoredType::bf16) bytes[0] += count;
    if (tensor.entry->type == StoredType::f16) bytes[1] += count;
    if (tensor.entry->type == StoredType::f32) bytes[2] += count;
  }
  constexpr std::array kTypes{DType::bf16, DType::f16, DType::f32};
  return kTypes[static_cast<std::size_t>(std::max_element(bytes.begin(), bytes.end()) -
                                         bytes.begin())];
}

std::optional<ScaleFormat> scale_format_of(StoredType type) {
  switch (type) {
    case StoredType::f32:
      return ScaleFormat::f32;
    case StoredType::bf16:
      return ScaleFormat::bf16;
    case StoredType::f16:
      return ScaleFormat::f16;
    case StoredType::u8:
    case StoredType::f8_e8m0:
      return ScaleFormat::e8m0;
    case StoredType::f8_e4m3:
      return ScaleFormat::e4m3_f32;
    default:
      return std::nullopt;
  }
}

FoundWeight assemble(const FoundParts& parts) {
  if (parts.scales == nullptr) misfit(parts, "codes mean nothing without scales");
  if (const auto type = safetensors::element_type(parts.codes->entry->type);
      type && is_value(type->dtype))
    misfit(parts, "a weight that is not quantized has no scales; remove them");
  if (!holds_codes(*parts.codes))
    fail(ErrorCode::unsupported, kDialectOp, "'", shown(parts.name, 200), "' is quantized to ",
         shown_entry(*parts.codes->entry), "; expected FP8, INT8 (I8) or bytes of FP4 or FP6");
  if (parts.zero_points != nullptr)
    fail(ErrorCode::unsupported, kDialectOp, "'", shown(parts.name, 200),
         "' is asymmetric: it has zero points ('", shown(parts.zero_points->name(), 200),
         "'); expected symmetric codes; quantize it symmetrically, or decode it with its own tool");
  const auto shape = shape_of(*parts.codes->entry), grid = shape_of(*parts.scales->entry);
  const auto scale = scale_format_of(parts.scales->entry->type);
  if (!shape || !grid || shape->rank() < 2 || !scale) misfit(parts, "they do not fit together");
  const std::int64_t scales = element_count(*grid);

  FoundWeight found;
  QuantizedWeight& weight = found.weight;
  weight.name = parts.name;
  weight.module = module_of(parts.name);
  const StoredType codes_type = parts.codes->entry->type;
  const bool integers =
      codes_type == StoredType::i8 && scale != ScaleFormat::e8m0 && scale != ScaleFormat::e4m3_f32;
  if (holds_fp8(*parts.codes) || integers) {
    const Format format = integers ? int8 : codes_type == StoredType::f8_e5m2 ? e5m2 : e4m3fn;
    weight.shape = parts.shape.value_or(*shape);
    if (parts.swizzled) {
      weight.scaling = preset("mxfp8");
    } else {
      weight.scaling = byte_scaling(parts, weight.shape, scales, format, *scale);
    }
    if (weight.scaling.tile.rows < 0) misfit(parts, "no tile fits both");
  } else {
    Packed packed = packed_weight(parts, *shape, scales, *scale);
    weight.shape = packed.shape;
    weight.scaling = packed.scaling;
  }
  check_scaling(weight.scaling);
  for (const std::int64_t size : weight.shape.sizes())
    if (size < 0) misfit(parts, "its true shape is none");
  check_sizes(parts, weight, scales);

  const auto add = [&](const StoredTensor* tensor, Part part) -> DialectTensor* {
    if (tensor == nullptr) return nullptr;
    const TensorEntry& entry = *tensor->entry;
    found.tensors.push_back({.plan = {entry.name, entry.type, entry.shape}, .part = part});
    return &found.tensors.back();
  };
  add(parts.codes, Part::codes)->high_nibble_first = parts.high_nibble_first;
  add(parts.scales, Part::scales)->swizzled = parts.swizzled;
  if (weight.scaling.scale.format == ScaleFormat::e4m3_f32)
    add(parts.tensor_scale, Part::tensor_scale)->divisor = parts.divisor;
  add(parts.marker, Part::marker);
  return found;
}

void collect_into(std::vector<FoundWeight>& found, const std::string& name, Misfits* misfits,
                  const std::function<FoundWeight()>& make) {
  if (misfits == nullptr) {
    found.push_back(make());
    return;
  }
  try {
    found.push_back(make());
  } catch (const Error& error) {
    misfits->push_back({name, reason_of(error)});
  }
}

void assemble_into(std::vector<FoundWeight>& found, const FoundParts& parts, Misfits* misfits) {
  collect_into(found, parts.name, misfits, [&] { return assemble(parts); });
}

}  // namespace octavo
