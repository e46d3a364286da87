// Rules on types and shapes of one weight, divisibility and tensor parallelism.
#include <algorithm>
#include <array>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;
bool is_loaders(Dialect dialect) {
  return dialect != Dialect::comfyui && dialect != Dialect::octavo;
}

// Tile sizes that rows and columns must be multiples of; 0: no constraint.
struct Multiples {
  std::int64_t rows = 0, cols = 0;
};
Multiples multiples_of(const VerifiedWeight& weight) {
  if (!weight.scheme) return {};
  const Tile tile = weight.found->weight.scaling.tile;
  if (*weight.scheme == Scheme::fp8_block) return {tile.rows, tile.cols};
  const bool whole_groups =
      !has_float_scales(*weight.scheme) || *weight.scheme == Scheme::int4_group;
  return whole_groups ? Multiples{0, tile.cols} : Multiples{};
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
  check_static_scales(view, StaticFault::type, out);
  for (const VerifiedWeight& weight : view.weights) {
    const StoredType type = weight.scales->plan.type;
    const std::string& name = weight.scales->plan.name;
    const bool mx =
        weight.scheme && !has_float_scales(*weight.scheme) && *weight.scheme != Scheme::nvfp4;
    if (mx && type != StoredType::u8)
      out.error({kV, kH, kS, kT}, name,
                text("scales of MX are ", stored_name(type), "; expected U8: bytes are copied"));
    if (weight.scheme && has_float_scales(*weight.scheme) && type == StoredType::f16)
      out.warn({kV, kH, kS, kT}, name, "scales of F16 end at 2^-24; expected F32 or BF16");
    if (weight.scheme && is_fp8(*weight.scheme) && type == StoredType::f8_e8m0 &&
        view.words["scale_fmt"].string_or("") != "ue8m0")
      out.error({kV, kH, kS, kT}, name,
                "scales of F8_E8M0 without \"scale_fmt\": \"ue8m0\" in config.json");
    if (weight.tensor_scale != nullptr && weight.tensor_scale->plan.type != StoredType::f32)
      out.error({kV, kS, kT}, weight.tensor_scale->plan.name,
                text("the second level is ", stored_name(weight.tensor_scale->plan.type),
                     "; expected F32"));
  }
}

// The only scale shape that the dialect allows for a weight; empty where it allows several.
static std::vector<std::uint64_t> wanted_grid(Dialect dialect, const VerifiedWeight& weight) {
  const QuantizedWeight& of = weight.found->weight;
  const Shape grid = scale_shape(of.shape, of.scaling);
  std::vector<std::uint64_t> out(grid.sizes().begin(), grid.sizes().end());
  if (dialect != Dialect::modelopt || out.size() != 2) return out;
  if (weight.scheme == Scheme::fp8_channel) return {out[0]};
  if (weight.scheme == Scheme::fp8_block) return {out[0], 1, out[1], 1};
  return out;
}

void check_scale_shapes(const VerifyView& view, Findings& out) {
  const Dialect dialect = view.recognized.dialect;
  if (!is_loaders(dialect)) return;
  check_static_scales(view, StaticFault::shape, out);
  const auto is_one = [](const std::vector<std::uint64_t>& shape) {
    return shape.empty() || (shape.size() == 1 && shape[0] == 1);
  };
  for (const VerifiedWeight& weight : view.weights) {
    const auto& shape = weight.scales->plan.shape;
    const auto wanted = wanted_grid(dialect, weight);
    const bool single = weight.found->weight.scaling.tile == Tile{0, 0};
    // The deepseek dialect has no per-channel scheme, so no loader checks the shape.
    const bool any = dialect == Dialect::deepseek && weight.scheme == Scheme::fp8_channel;
    if (single ? !is_one(shape) : !any && shape != wanted)
      out.error({kV, kH, kS, kT}, weight.scales->plan.name,
                text("scales of shape ", shape_text(shape), "; expected ",
                     single ? std::string("[] or [1]") : shape_text(wanted)));
    if (weight.tensor_scale != nullptr && !is_one(weight.tensor_scale->plan.shape))
      out.error({kV, kH, kS, kT}, weight.tensor_scale->plan.name,
                text("the second level has the shape ", shape_text(weight.tensor_scale->plan.shape),
                     "; expected [] or [1]"));
  }
}

// A ragged last block of rows is accepted where no other part of a fused matrix follows: always by
// vLLM and TensorRT-LLM, by SGLang only where the matrix is replicated on every device.
static void check_ragged_rows(const VerifyView& view, const VerifiedWeight& weight, Findings& out) {
  const QuantizedWeight& of = weight.found->weight;
  const std::string reason =
      not_divisible("it", "rows", extent_of(of).matrix_rows, of.scaling.tile.rows);
  const std::string& name = weight.codes->plan.name;
  const bool stack = of.shape.rank() != 2;
  const FusedPlace place = stack ? FusedPlace::inner : fused_place(of.module);
  if (place == FusedPlace::inner) {
    out.error({kV, kS, kT}, name, reason);
  } else if (place == FusedPlace::last) {
    out.error({kS}, name, reason);
  }
  // transformers decodes blocks only where rows and columns are multiples of 128;
  // compressed-tensors pads them.
  if (view.recognized.dialect == Dialect::deepseek || stack) out.error({kH}, name, reason);
}

void check_divisible(const VerifyView& view, Findings& out) {
  if (!is_loaders(view.recognized.dialect)) return;
  for (const VerifiedWeight& weight : view.weights) {
    const auto [rows, cols] = multiples_of(weight);
    const Extent extent = extent_of(weight.found->weight);
    const std::string& name = weight.codes->plan.name;
    if (cols > 0 && extent.cols % cols != 0)
      out.error({kV, kH, kS, kT}, name, not_divisible("it", "columns", extent.cols, cols));
    else if (rows > 0 && extent.matrix_rows % rows != 0)
      check_ragged_rows(view, weight, out);
    if (weight.scheme == Scheme::fp8_block && (rows != kBlock || cols != kBlock))
      out.error({kT}, name, text("blocks of ", rows, " x ", cols, "; expected 128 x 128"));
  }
}

// Tensor parallelism: column-parallel layers (QKV, gate_up) are split by rows of the weight,
// row-parallel layers (o_proj, down_proj) by columns.
void check_tensor_parallel(const VerifyView& view, Findings& out) {
  const std::int64_t devices = view.options.tensor_parallel;
  if (devices == 1 || !is_loaders(view.recognized.dialect)) return;
  constexpr std::array<std::string_view, 7> kByColumns{"o_proj", "down_proj", "wo",   "w2",
                                                       "c_proj", "out_proj",  "dense"};
  for (const VerifiedWeight& weight : view.weights) {
    const std::string& module = weight.found->weight.module;
    const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
    if (last == "q_a_proj" || last == "wq_a" || fused_place(module) == FusedPlace::replicated_last)
      continue;  // MLA's q_a/kv_a are replicated on every device
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
                     "; expected multiples of ", of, "; use fewer devices or another recipe"));
  }
}

void check_stacks(const VerifyView& view, Findings& out) {
  const Dialect dialect = view.recognized.dialect;
  if (!is_loaders(dialect)) return;
  for (const VerifiedWeight& weight : view.weights) {
    if (weight.found->weight.shape.rank() == 2) continue;
    const std::string& name = weight.codes->plan.name;
    constexpr std::string_view kWanted =
        "experts in one tensor; expected one matrix each: experts.0.up_proj.weight ...";
    if (dialect == Dialect::deepseek)
      out.warn({kV, kS, kT}, name, std::string(kWanted));
    else
      out.error({kV, kH, kS, kT}, name, std::string(kWanted));
  }
}

}  // namespace octavo
