#include "octavo/pipeline/plan/file/shard_work.h"
#include "octavo/pipeline/plan/file/shard_groups_internal.h"

#include <algorithm>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/pipeline/plan/row_blocks_internal.h"

namespace octavo {

std::vector<bool> groups_across_files(const QuantizePlan& plan) {
  const auto groups = static_cast<std::size_t>(plan.groups);
  std::vector<bool> across(groups, false);
  std::vector<std::size_t> file(groups, plan.files.size());
  for (const TensorAction& action : plan.actions) {
    if (action.group < 0) continue;
    const auto group = static_cast<std::size_t>(action.group);
    if (file[group] == plan.files.size()) file[group] = action.file;
    if (file[group] != action.file) across[group] = true;
  }
  return across;
}

std::vector<std::vector<std::size_t>> amax_files(const QuantizePlan& plan) {
  const std::vector<bool> across = groups_across_files(plan);
  std::vector<std::vector<std::size_t>> files_of(across.size()), out(plan.files.size());
  const auto each = [&](const auto& what) {
    for (const TensorAction& action : plan.actions)
      if (action.group >= 0 && across[static_cast<std::size_t>(action.group)])
        what(static_cast<std::size_t>(action.group), action.file);
  };
  each([&](std::size_t group, std::size_t file) { files_of[group].push_back(file); });
  each([&](std::size_t group, std::size_t file) {
    out[file].insert(out[file].end(), files_of[group].begin(), files_of[group].end());
  });
  for (std::vector<std::size_t>& files : out) {
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
  }
  return out;
}

namespace {

// The bytes of a source that hold one byte of its tensors as they are read: less than one where
// they are decoded.
double stored_share(const CheckpointReader& source) {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : source.tensors()) bytes += tensor.nbytes();
  return bytes == 0 ? 1.0 : static_cast<double>(source.nbytes()) / static_cast<double>(bytes);
}

// Of a found weight: all tensors that hold it, or of a stack that is split its rows of them.
std::uint64_t bytes_of_found(const CheckpointReader& source, const TensorAction& action) {
  std::uint64_t bytes = 0;
  for (const DialectTensor& tensor : action.found->tensors)
    if (const StoredTensor* const stored = source.find(tensor.plan.name); stored != nullptr)
      bytes += stored->nbytes();
  const auto part = static_cast<double>(element_count(action.weight.shape));
  const auto whole = static_cast<double>(element_count(action.found->weight.shape));
  return whole > part ? static_cast<std::uint64_t>(static_cast<double>(bytes) * part / whole)
                      : bytes;
}

}  // namespace

std::vector<ShardWork> shard_work(const CheckpointReader& source, const QuantizePlan& plan) {
  std::vector<ShardWork> out(plan.files.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i].file = plan.files[i];
  const std::vector<bool> across = groups_across_files(plan);
  const double share = stored_share(source);
  for (const TensorAction& action : plan.actions) {
    ShardWork& work = out[action.file];
    std::uint64_t bytes = 0;
    if (action.found) {
      bytes = bytes_of_found(source, action);
    } else if (action.quantize) {
      const RowLayout layout = row_layout(source, action);
      bytes = static_cast<std::uint64_t>(layout.rows * layout.row_bytes);
    } else {
      bytes = source.tensors()[action.tensor].nbytes();
    }
    if (share != 1.0) bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) * share);
    work.bytes_read += bytes;
    if (action.quantize && !action.found && has_tensor_scale(action.scaling))
      work.bytes_amax += bytes;
    if (action.group >= 0 && across[static_cast<std::size_t>(action.group)])
      work.bytes_shared += bytes;
    work.bytes_written += bytes_after(action);
  }
  return out;
}

std::vector<int> assign_ranks(std::span<const ShardWork> work, int world) {
  check(world >= 1, ErrorCode::invalid_argument, "plan", "got a world of ", world,
        "; expected at least 1");
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work[a].bytes() > work[b].bytes(); });
  std::vector<std::uint64_t> has(static_cast<std::size_t>(world), 0);
  std::vector<int> out(work.size(), 0);
  for (const std::size_t i : order) {
    const auto least = std::min_element(has.begin(), has.end());
    *least += work[i].bytes();
    out[i] = static_cast<int>(least - has.begin());
  }
  return out;
}

WorldBalance balance_of(std::span<const ShardWork> work, int world) {
  const std::vector<int> ranks = assign_ranks(work, world);
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(world), 0);
  std::vector<std::size_t> files(static_cast<std::size_t>(world), 0);
  for (std::size_t i = 0; i < work.size(); ++i) {
    bytes[static_cast<std::size_t>(ranks[i])] += work[i].bytes();
    ++files[static_cast<std::size_t>(ranks[i])];
  }
  WorldBalance out{.world = world};
  out.fewest_files = *std::min_element(files.begin(), files.end());
  out.most_files = *std::max_element(files.begin(), files.end());
  out.bytes = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  out.most_bytes = *std::max_element(bytes.begin(), bytes.end());
  return out;
}

}  // namespace octavo
