// The comfyui dialect: each weight has a marker tensor (comfy_quant) of JSON that declares its
// format; config.json is not used. FP4 has its first element in the high nibble, block scales are
// swizzled for tensor cores, and codes are padded to whole tiles of 16 x 16 (nvfp4) or 32 x 32
// (mxfp8).
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::string_view kName = "comfyui", kMarker = ".comfy_quant";

constexpr std::int64_t up(std::int64_t size, std::int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

std::string_view format_of(const Scaling& scaling) {
  switch (*scheme_of(scaling)) {
    case Scheme::nvfp4:
      return "nvfp4";
    case Scheme::mxfp8:
      return "mxfp8";
    default:
      return scaling.format == e5m2 ? "float8_e5m2" : "float8_e4m3fn";
  }
}

std::string why_not(const QuantizedWeight& weight) {
  const auto scheme = scheme_of(weight.scaling);
  if (scheme != Scheme::fp8_tensor && scheme != Scheme::mxfp8 && scheme != Scheme::nvfp4)
    return unsupported_scaling(kName, weight.scaling, "fp8, mxfp8 (e4m3fn), nvfp4");
  if (!weight.name.ends_with(".weight")) return "its name does not end in '.weight'";
  const Extent extent = extent_of(weight);
  if (extent.rows == 0 || extent.cols == 0) return "it has no elements";
  if (weight.shape.rank() != 2 && scheme != Scheme::fp8_tensor)
    return "it is no matrix, and only one scale for all has no tiles";
  return "";
}

std::vector<DialectTensor> dialect_tensors(const QuantizedWeight& weight) {
  const Scheme scheme = *scheme_of(weight.scaling);
  const auto [rows, cols, matrix_rows] = extent_of(weight);
  const std::string codes = weight.module + ".weight", scales = codes + "_scale";
  Json words = Json::object({{"format", format_of(weight.scaling)}});
  std::vector<DialectTensor> out;
  if (scheme == Scheme::fp8_tensor) {
    const auto sizes = weight.shape.sizes();
    out = {{.plan = {.name = codes,
                     .type = byte_code_type(weight.scaling),
                     .shape = {sizes.begin(), sizes.end()}}},
           {.plan = plan_tensor(scales, StoredType::f32, {}), .part = Part::scales}};
  } else {
    const bool fp4 = scheme == Scheme::nvfp4;
    const std::int64_t tile = fp4 ? 16 : 32;
    const std::int64_t all_rows = up(rows, tile), all_cols = up(cols, tile);
    // ComfyUI takes the unpadded shape from the layer; other readers need orig_shape.
    if (all_rows != rows || all_cols != cols) words.set("orig_shape", Json::array({rows, cols}));
    out = {{.plan = plan_tensor(codes, fp4 ? StoredType::u8 : StoredType::f8_e4m3,
                                {all_rows, fp4 ? all_cols / 2 : all_cols}),
            .high_nibble_first = fp4},
           {.plan = plan_tensor(scales, fp4 ? StoredType::f8_e4m3 : StoredType::f8_e8m0,
                                {up(rows, 128), up(all_cols / tile, 4)}),
            .part = Part::scales,
            .swizzled = true}};
    if (fp4)
      out.push_back({.plan = plan_tensor(codes + "_scale_2", StoredType::f32, {}),
                     .part = Part::tensor_scale});
  }
  const std::string marker = words.dump(0);
  out.push_back({.plan = plan_tensor(weight.module + std::string(kMarker), StoredType::u8,
                                     {static_cast<std::int64_t>(marker.size())}),
                 .part = Part::marker,
                 .constant = marker});
  return out;
}

void configure(const QuantizedModel&, Json&, Json&) {}

// The marker JSON of a layer: its own marker tensor, or its entry in the file's metadata.
Json marker_json(const CheckpointReader& checkpoint, const std::string& module,
                 const StoredTensor* marker, const Json& layers) {
  constexpr std::uint64_t kMaxMarkerBytes = 1U << 16;
  if (marker == nullptr) return layers[module];
  check(marker->nbytes() <= kMaxMarkerBytes, ErrorCode::invalid_argument, kDialectOp, "'",
        shown(marker->name(), 200), "' has ", marker->nbytes(), " bytes; expected a short JSON");
  std::string words(marker->nbytes(), '\0');
  checkpoint.read(*marker, 0, std::as_writable_bytes(std::span(words)));
  return parse_json(words, marker->name());
}

Json layers_in_metadata(const CheckpointReader& checkpoint) {
  for (const auto& file : checkpoint.files()) {
    const auto found = file.header().metadata.find("_quantization_metadata");
    if (found != file.header().metadata.end())
      return parse_json(found->second, "_quantization_metadata")["layers"];
  }
  return {};
}

bool takes_input(std::optional<Scheme> scheme) {
  return scheme == Scheme::fp8_tensor || scheme == Scheme::nvfp4;
}

std::vector<FoundWeight> find(const CheckpointReader& checkpoint, Misfits* misfits) {
  const Json layers = layers_in_metadata(checkpoint);
  std::vector<FoundWeight> found;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::string& name = tensor.name();
    if (!name.ends_with(".weight")) continue;
    const std::string module = name.substr(0, name.size() - 7);
    const StoredTensor* const marker = checkpoint.find(module + std::string(kMarker));
    const Json words = marker_json(checkpoint, module, marker, layers);
    const std::string_view format = words["format"].string_or("");
    FoundParts parts{.name = name,
                     .codes = &tensor,
                     .scales = checkpoint.find(name + "_scale"),
                     .tensor_scale = checkpoint.find(name + "_scale_2"),
                     .marker = marker};
    if (format.empty()) {  // the older layout; FP8 without any scale is an unscaled cast
      parts.scales = checkpoint.find(module + ".scale_weight");
      if (parts.scales == nullptr || !holds_fp8(tensor)) continue;
    }
    parts.high_nibble_first = format == "nvfp4";
    parts.swizzled = format == "nvfp4" || format == "mxfp8";
    const auto& shape = words["orig_shape"].elements();
    if (shape.size() == 2) parts.shape = Shape{shape[0].integer_or(-1), shape[1].integer_or(-1)};
    assemble_into(found, parts, misfits);
  }
  return found;
}

}  // namespace

const DialectTable& comfyui_dialect() {
  static constexpr DialectTable kTable{
      kName, why_not, dialect_tensors, configure, find, true, {takes_input, ".input_scale"}};
  return kTable;
}

}  // namespace octavo
