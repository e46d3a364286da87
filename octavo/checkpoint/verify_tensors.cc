// Types and shapes of one weight, and how matrices can be split.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;
constexpr auto kV = Loader::vllm, kH = Loader::transformers, kS = Loader::sglang,
               kT = Loader::trtllm;

bool is_loaders(Dialect dialect) {
  return dialect != Dialect::comfyui && dialect != Dialect::octavo;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += text(i > 0 ? ", " : "", shape[i]);
  return out + "]";
}

// Of which size its tiles are: 0 where the extent does not matter.
struct Multiples {
  std::int64_t rows = 0, cols = 0;
};
Multiples multiples_of(const VerifiedWeight& weight) {
  if (!weight.scheme) return {};
  const Tile tile = weight.found->weight.scaling.tile;
  if (*weight.scheme == Scheme::fp8_block) return {tile.rows, tile.cols};
  return is_fp8(*weight.scheme) ? Multiples{} : Multiples{0, tile.cols};
}

}  // namespace

void check_code_types(const VerifyView& view, Findings& out) {
  if (!is_loaders(view.recognized.dialect)) return;
  for (const VerifiedWeight& weight : view.weights)
    if (weight.codes->plan.type == StoredType::f8_e5m2)
      out.error({kV, kH, kS, kT}, weight.codes->plan.name,
                "weights of F8_E5M2, where it takes F8_E4M3 alone");
}

void check_scale_types(const VerifyView& view, Findings& out) {
  if (!is_loaders(view.recognized.dialect)) return;
  for (const VerifiedWeight& weight : view.weights) {
    const StoredType type = weight.scales->plan.type;
    const std::string& name = weight.scales->plan.name;
    const bool mx = weight.scheme && !is_fp8(*weight.scheme) && *weight.scheme != Scheme::nvfp4;
    if (mx && type != StoredType::u8)
      out.error({kV, kH, kS, kT}, name,
                text("scales of MX are ", stored_name(type), ", wanted U8: bytes are copied"));
    if (weight.scheme && is_fp8(*weight.scheme) && type == StoredType::f16)
      out.warn({kV, kH, kS, kT}, name, "scales of F16 end at 2^-24; wanted F32 or BF16");
    if (weight.scheme && is_fp8(*weight.scheme) && type == StoredType::f8_e8m0 &&
        view.words["scale_fmt"].string_or("") != "ue8m0")
      out.error({kV, kH, kS, kT}, name,
                "scales of F8_E8M0 without \"scale_fmt\": \"ue8m0\" in config.json");
    if (weight.tensor_scale != nullptr && weight.tensor_scale->plan.type != StoredType::f32)
      out.error({kV, kS, kT}, weight.tensor_scale->plan.name,
                text("the second level is ", stored_name(weight.tensor_scale->plan.type),
                     ", wanted F32"));
  }
}

void check_scale_shapes(const VerifyView& view, Findings& out) {
  const Dialect dialect = view.recognized.dialect;
  if (dialect != Dialect::compressed_tensors && dialect != Dialect::modelopt) return;
  const bool ct = dialect == Dialect::compressed_tensors;
  for (const VerifiedWeight& weight : view.weights) {
    const auto& shape = weight.scales->plan.shape;
    const std::size_t rank = shape.size();
    const auto wrong = [&](std::string_view wanted) {
      out.error({kV, kS, kT}, weight.scales->plan.name,
                text("scales of shape ", shape_text(shape), ", wanted ", wanted));
    };
    if (weight.scheme == Scheme::fp8_tensor && rank > 1) wrong("one of [1] or []");
    if (weight.scheme == Scheme::fp8_channel && ct && (rank != 2 || shape[1] != 1)) wrong("[N, 1]");
    if (weight.scheme == Scheme::fp8_channel && !ct && rank != 1) wrong("[N]");
    if (weight.scheme == Scheme::fp8_block && ct && rank != 2) wrong("[N / 128, K / 128]");
    if (weight.scheme == Scheme::fp8_block && !ct && rank != 4) wrong("[N / 128, 1, K / 128, 1]");
  }
}

void check_divisible(const VerifyView& view, Findings& out) {
  if (!is_loaders(view.recognized.dialect)) return;
  for (const VerifiedWeight& weight : view.weights) {
    const auto [rows, cols] = multiples_of(weight);
    const Extent extent = extent_of(weight.found->weight);
    const std::string& name = weight.codes->plan.name;
    if (rows > 0 && extent.matrix_rows % rows != 0)
      out.error({kV, kH, kS, kT}, name, not_divisible("it", "rows", extent.matrix_rows, rows));
    else if (cols > 0 && extent.cols % cols != 0)
      out.error({kV, kH, kS, kT}, name, not_divisible("it", "columns", extent.cols, cols));
    if (weight.scheme == Scheme::fp8_block && (rows != kBlock || cols != kBlock))
      out.error({kT}, name, text("blocks of ", rows, " x ", cols, ", wanted 128 x 128"));
  }
}

// Servers split what comes first in a layer by rows, and what adds up at its end by columns.
void check_tensor_parallel(const VerifyView& view, Findings& out) {
  const std::int64_t devices = view.options.tensor_parallel;
  if (devices == 1 || !is_loaders(view.recognized.dialect)) return;
  constexpr std::array<std::string_view, 7> kByColumns{"o_proj", "down_proj", "wo",   "w2",
                                                       "c_proj", "out_proj",  "dense"};
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& module = weight.found->weight.module;
    const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
    const auto [rows, cols] = multiples_of(weight);
    const Extent extent = extent_of(weight.found->weight);
    bool by_columns = false;
    for (const std::string_view one : kByColumns) by_columns |= last == one;
    const std::int64_t size = by_columns ? extent.cols : extent.matrix_rows;
    const std::int64_t of = std::max<std::int64_t>(1, by_columns ? cols : rows);
    const std::string_view what = by_columns ? "columns" : "rows";
    if (size % devices != 0)
      out.error({kV, kS, kT}, module,
                text(size, " ", what, " cannot be split over ", devices, " devices"));
    else if (size / devices % of != 0)
      out.error({kV, kS, kT}, module,
                text("each of ", devices, " devices gets ", size / devices, " ", what,
                     ", wanted multiples of ", of, "; use fewer devices or another recipe"));
  }
}

void check_stacks(const VerifyView& view, Findings& out) {
  const Dialect dialect = view.recognized.dialect;
  if (!is_loaders(dialect)) return;
  for (const VerifiedWeight& weight : view.weights) {
    if (weight.found->weight.shape.rank() == 2) continue;
    const std::string& name = weight.codes->plan.name;
    constexpr std::string_view kWanted =
        "experts in one tensor, wanted one matrix each: experts.0.up_proj.weight ...";
    if (dialect == Dialect::deepseek)
      out.warn({kV, kS, kT}, name, std::string(kWanted));
    else
      out.error({kV, kH, kS, kT}, name, std::string(kWanted));
  }
}

void check_activation_scales(const VerifyView& view, Findings& out) {
  const Dialect dialect = view.recognized.dialect;
  const auto lacks = [&](const VerifiedWeight& weight, std::string_view suffix) {
    return view.checkpoint.find(text(weight.found->weight.module, suffix)) == nullptr;
  };
  if (dialect == Dialect::modelopt)
    for (const VerifiedWeight& weight : view.weights)
      if (weight.scheme == Scheme::fp8_tensor && lacks(weight, ".input_scale"))
        out.error({kV, kS}, weight.found->weight.module,
                  "FP8 per tensor is static there, and 'input_scale' is missing; use fp8-channel, "
                  "or the target compressed-tensors");
  if (dialect != Dialect::compressed_tensors) return;
  for (const auto& [name, group] : view.words["config_groups"].members()) {
    const Json& input = group["input_activations"];
    if (!input.is_object()) continue;
    const bool local = input["dynamic"].string_or("") == "local";
    if (!local && input["dynamic"].boolean_or(false)) continue;
    for (const VerifiedWeight& weight : view.weights)
      if (lacks(weight, local ? ".input_global_scale" : ".input_scale"))
        out.error({kV, kH, kS, kT}, weight.found->weight.module,
                  text("group '", shown(name), "' has static activations, and '",
                       local ? "input_global_scale" : "input_scale", "' is missing"));
  }
}

}  // namespace octavo
