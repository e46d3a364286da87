// Assigns tensors to shards: as in the source, or by size.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/output_files_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize", kIndex = "model.safetensors.index.json";

std::uint64_t planned_bytes(const safetensors::TensorPlan& plan) {
  std::uint64_t bits = static_cast<std::uint64_t>(safetensors::stored_bits(plan.type));
  for (const std::uint64_t size : plan.shape)
    if (__builtin_mul_overflow(bits, size, &bits))
      fail(ErrorCode::invalid_argument, kOp, "tensor '", shown(plan.name, 160), "' is too large");
  return bits / 8;
}

// The action whose shard it goes into.
const TensorAction& leader_of(const QuantizePlan& plan, const TensorAction& action) {
  return action.joins ? plan.actions[*action.joins] : action;
}

void check_names(std::string_view op, const QuantizePlan& plan) {
  std::vector<std::string_view> names;
  for (const TensorAction& action : plan.actions)
    for (const DialectTensor& output : action.outputs) names.push_back(output.plan.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    fail(ErrorCode::invalid_argument, op, "two tensors of the output would be called '",
         shown(*twice, 160), "'; ",
         op == kOp ? "exclude the one that makes it"
                   : "the source has one of them already: give it another name there");
}

// "model-00001-of-00002.safetensors" and an index, or "model.safetensors".
void name_files(QuantizePlan& plan, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, count);
    plan.files.emplace_back(count == 1 ? "model.safetensors" : name);
  }
  plan.index_name = count > 1 ? kIndex : std::string_view();
}

// Keeps the source's shards and their names. A shard that becomes empty (it had only scales, which
// are now with their codes) is not written, and the others are renumbered: an index that skips a
// number looks incomplete.
void place_as_source(const CheckpointReader& source, QuantizePlan& plan) {
  std::vector<std::size_t> place(source.files().size(), 0);
  for (TensorAction& action : plan.actions) {
    action.file = source.tensors()[leader_of(plan, action).tensor].file;
    place[action.file] = 1;
  }
  std::size_t count = 0;
  for (std::size_t& at : place) at = at > 0 ? count++ : 0;
  if (count > 0 && count < place.size()) {
    for (TensorAction& action : plan.actions) action.file = place[action.file];
    return name_files(plan, count);
  }
  for (const auto& file : source.files())
    plan.files.push_back(source.is_folder() ? std::filesystem::path(file.path()).filename().string()
                                            : "model.safetensors");
  plan.index_name = source.index_name();
}

// In order until a shard is full. One tensor may exceed the shard size.
void place_by_size(QuantizePlan& plan) {
  std::uint64_t filled = 0;
  std::size_t file = 0;
  for (TensorAction& action : plan.actions) {
    const std::uint64_t bytes = bytes_after(action);
    if (filled > 0 && filled + bytes > plan.options.shard_bytes) {
      ++file;
      filled = 0;
    }
    filled += bytes;
    action.file = file;
  }
  for (TensorAction& action : plan.actions) action.file = leader_of(plan, action).file;
  name_files(plan, file + 1);
}

}  // namespace

std::uint64_t bytes_after(const TensorAction& action) {
  std::uint64_t bytes = 0;
  for (const DialectTensor& output : action.outputs) bytes += planned_bytes(output.plan);
  return bytes;
}

const std::string& name_of(const CheckpointReader& source, const TensorAction& action) {
  return action.quantize ? action.weight.name : source.tensors()[action.tensor].name();
}

bool is_one_file(std::string_view out) {
  return out.ends_with(".safetensors") || out.ends_with(".gguf");
}

void check_output_name(std::string_view op, const std::string& out, Dialect target) {
  check(!out.empty(), ErrorCode::invalid_argument, op, "got no name for the output");
  const bool gguf = out.ends_with(".gguf");
  if (target == Dialect::gguf && !gguf)
    fail(ErrorCode::invalid_argument, op, "target gguf is one file, got '", shown(out, 200),
         "'; give a name that ends in .gguf");
  if (target != Dialect::gguf && gguf)
    fail(ErrorCode::invalid_argument, op, "'", shown(out, 200),
         "' has the name of a GGUF file, and target ", name_of(target),
         " is none; choose target gguf, or give the name of a folder");
}

void place_actions(std::string_view op, const CheckpointReader& source, QuantizePlan& plan) {
  check_names(op, plan);
  if (plan.gguf != nullptr) {
    for (TensorAction& action : plan.actions) action.file = 0;
    plan.files = {"model.gguf"};
  } else if (plan.options.shard_bytes == 0) {
    place_as_source(source, plan);
  } else {
    place_by_size(plan);
  }
  plan.bytes_before = source.nbytes();
  for (const TensorAction& action : plan.actions) plan.bytes_after += bytes_after(action);
}

}  // namespace octavo
