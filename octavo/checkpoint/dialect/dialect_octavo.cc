// The octavo dialect: the layout of quantized_file.h, tensor by tensor. It holds every scaling and
// every shape.
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/quantized_file.h"
#include "octavo/checkpoint/quantized_file_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kName = "octavo";

std::string why_not(const QuantizedWeight& weight) {
  if (weight.scaling.scale_order != ScaleOrder::row_major) return "scales in files are row-major";
  return "";
}

std::vector<DialectTensor> dialect_tensors(const QuantizedWeight& weight) {
  // Shapes of the parts only; no memory is used.
  const QuantizedTensor shapes = make_quantized(
      weight.shape, weight.source, weight.scaling,
      [](const View& like) { return Tensor::adopt(like, std::make_shared<char>()); });
  const QuantizedCopy& copy = shapes.rowwise;
  std::vector<DialectTensor> out{
      {.plan = stored_plan(weight.name, copy.codes.view())},
      {.plan = stored_plan(scales_name(weight.name), copy.scales.view()), .part = Part::scales}};
  if (copy.tensor_scale.owner() != nullptr)
    out.push_back({.plan = stored_plan(tensor_scale_name(weight.name), copy.tensor_scale.view()),
                   .part = Part::tensor_scale});
  return out;
}

// Other loaders do not know this quant_method, and those that check it refuse the checkpoint.
void configure(const QuantizedModel& model, Json& config, Json&) {
  Json& quant_config = config.set("quantization_config", Json::object({{"quant_method", kName}}));
  if (model.cache == CacheScheme::fp8)
    quant_config.set("kv_cache_scheme",
                     Json::object({{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}));
}

FoundWeight found_weight(const CheckpointReader& checkpoint, const std::string& name,
                         std::string_view line) {
  try {
    const Description declared = parse_description(line);
    FoundWeight found;
    found.weight = {.name = name,
                    .module = std::string(module_of(name)),
                    .shape = declared.shape,
                    .source = declared.source,
                    .scaling = declared.scaling};
    check(declared.scaling.rowwise && !declared.scaling.columnwise, ErrorCode::unsupported,
          kDialectOp, "it has a columnwise copy, which checkpoints do not; quantize it rowwise");
    found.tensors = dialect_tensors(found.weight);
    for (const DialectTensor& wanted : found.tensors) {
      const StoredTensor& has = checkpoint.at(wanted.plan.name);
      check(has.entry->type == wanted.plan.type && has.entry->shape == wanted.plan.shape,
            ErrorCode::invalid_argument, kDialectOp, "its part '", shown(wanted.plan.name, 200),
            "' has another type or shape than the metadata say");
    }
    return found;
  } catch (const Error& error) {
    fail(ErrorCode::invalid_argument, kDialectOp, "'", shown(name, 200), "': ", reason_of(error));
  }
}

std::vector<FoundWeight> find(const CheckpointReader& checkpoint, Misfits*) {
  std::vector<FoundWeight> found;
  for (const auto& file : checkpoint.files()) {
    if (!describes_itself(file)) continue;  // a shard without quantized tensors
    for (const std::string& name : quantized_names(file))
      found.push_back(found_weight(checkpoint, name, description_of(file, name)));
  }
  return found;
}

}  // namespace

const DialectTable& octavo_dialect() {
  static constexpr DialectTable kTable{
      kName,
      why_not,
      dialect_tensors,
      configure,
      find,
      true,
      {[](std::optional<Scheme>) { return true; }, ".input_scale", "", ".k_scale", ".v_scale"}};
  return kTable;
}

}  // namespace octavo
