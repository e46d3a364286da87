#include <algorithm>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/row_blocks_internal.h"

namespace octavo {
namespace {

// Row size for copying tensors that have no rows of their own.
constexpr std::int64_t kCopyRowBytes = 4096;

std::int64_t rows_of_row_block(const CheckpointReader& source, const QuantizePlan& plan,
                               const TensorAction& action, const RowLayout& layout) {
  const std::int64_t wanted = std::max<std::int64_t>(1, kRowBlockBytes / layout.row_bytes);
  if (!action.quantize && !action.found) {
    const std::int64_t together = source.rows_together(source.tensors()[action.tensor]);
    return std::max<std::int64_t>(1, wanted / together) * together;
  }
  // Converted weights need row blocks that are aligned in both dialects.
  std::int64_t unit = 1;
  if (action.quantize) unit = std::max(unit, row_block_rows(plan.options.target, action.weight));
  // One that is decoded as it is read is read in blocks of its own. Parts of a stack may begin
  // anywhere in them.
  if (!action.found && action.part.matrix < 0)
    unit = std::lcm(unit, source.rows_together(source.tensors()[action.tensor]));
  if (action.found)
    unit = std::lcm(unit, row_block_rows(plan.source_dialect, action.found->weight));
  const Shape& shape = action.weight.shape;
  const bool one_matrix = shape.rank() == 3 && unit == shape[1] && unit > 1;
  return one_matrix ? unit : std::max<std::int64_t>(1, wanted / unit) * unit;
}

// Copied tensors are disk-bound and quantized tensors are CPU-bound, so they are interleaved: at
// any time the same fraction of a file's copied bytes and of its quantized bytes is done. Each kind
// keeps its order.
void spread_copies(const CheckpointReader& source, const QuantizePlan& plan,
                   std::vector<RowBlock>::iterator begin, std::vector<RowBlock>::iterator end) {
  const auto is_copy = [&](const RowBlock& row_block) {
    const TensorAction& action = plan.actions[row_block.action];
    return !action.quantize && !action.found;
  };
  const auto bytes_of = [&](const RowBlock& row_block) {
    return static_cast<double>(row_block.rows *
                               row_layout(source, plan.actions[row_block.action]).row_bytes);
  };
  std::vector<RowBlock> kinds[2];
  double bytes[2] = {0, 0};
  for (auto row_block = begin; row_block != end; ++row_block) {
    kinds[is_copy(*row_block) ? 1 : 0].push_back(*row_block);
    bytes[is_copy(*row_block) ? 1 : 0] += bytes_of(*row_block);
  }
  std::size_t next[2] = {0, 0};
  double done[2] = {0, 0};
  for (auto row_block = begin; row_block != end; ++row_block) {
    const bool both = next[0] < kinds[0].size() && next[1] < kinds[1].size();
    const bool copy = both ? done[1] * bytes[0] < done[0] * bytes[1] : next[0] == kinds[0].size();
    const auto kind = static_cast<std::size_t>(copy);
    *row_block = kinds[kind][next[kind]++];
    done[kind] += bytes_of(*row_block);
  }
}

// Of the actions of a file.
void add_row_blocks(const CheckpointReader& source, const QuantizePlan& plan,
                    const std::vector<std::size_t>& actions, std::vector<RowBlock>& row_blocks) {
  const auto begin = static_cast<std::ptrdiff_t>(row_blocks.size());
  for (const std::size_t i : actions) {
    const TensorAction& action = plan.actions[i];
    const RowLayout layout = row_layout(source, action);
    const std::int64_t step = rows_of_row_block(source, plan, action, layout);
    std::size_t ordinal = 0;
    for (std::int64_t row = 0; row < layout.rows; row += step)
      row_blocks.push_back({i, ordinal++, row, std::min(step, layout.rows - row)});
  }
  spread_copies(source, plan, row_blocks.begin() + begin, row_blocks.end());
}

}  // namespace

RowLayout row_layout(const CheckpointReader& source, const TensorAction& action) {
  const safetensors::TensorEntry& entry = *source.tensors()[action.tensor].entry;
  const auto total = static_cast<std::int64_t>(entry.nbytes());
  if (action.quantize || action.found) {
    const Shape& shape = action.weight.shape;
    const std::int64_t cols = std::max<std::int64_t>(1, shape[shape.rank() - 1]);
    return {.rows = element_count(shape) / cols,
            .row_bytes = cols * element_bytes(action.weight.source)};
  }
  // The tensor's own rows where it has some, so that the content hash is the same when it is
  // quantized.
  std::int64_t row_bytes = kCopyRowBytes;
  if (entry.shape.size() >= 2 && total > 0) {
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < entry.shape.size(); ++i)
      rows *= static_cast<std::int64_t>(entry.shape[i]);
    if (total % rows == 0 && total / rows <= kRowBlockBytes) row_bytes = total / rows;
  }
  return {.rows = (total + row_bytes - 1) / row_bytes, .row_bytes = row_bytes};
}

std::vector<RowBlock> split_row_blocks(const CheckpointReader& source, const QuantizePlan& plan) {
  std::vector<std::vector<std::size_t>> actions(plan.files.size());
  for (std::size_t i = 0; i < plan.actions.size(); ++i) actions[plan.actions[i].file].push_back(i);
  std::vector<RowBlock> row_blocks;
  for (const std::vector<std::size_t>& of_file : actions)
    add_row_blocks(source, plan, of_file, row_blocks);
  return row_blocks;
}

std::vector<RowBlock> split_row_blocks(const CheckpointReader& source, const QuantizePlan& plan,
                                       std::size_t file) {
  std::vector<std::size_t> actions;
  for (std::size_t i = 0; i < plan.actions.size(); ++i)
    if (plan.actions[i].file == file) actions.push_back(i);
  std::vector<RowBlock> row_blocks;
  add_row_blocks(source, plan, actions, row_blocks);
  return row_blocks;
}

std::uint64_t row_block_memory(const CheckpointReader& source, const QuantizePlan& plan,
                               const std::vector<RowBlock>& row_blocks) {
  std::int64_t most = 0;
  for (const RowBlock& row_block : row_blocks) {
    const TensorAction& action = plan.actions[row_block.action];
    const std::int64_t window = row_block.rows * row_layout(source, action).row_bytes;
    if (!action.quantize && !action.found) {
      // In another type it exists as it was read, as f32 and as it is written.
      const bool same = action.outputs.empty() || action.outputs.front().plan.type ==
                                                      source.tensors()[action.tensor].entry->type;
      most = std::max(most, window * (same ? 1 : 5));
      continue;
    }
    // Codes and scales are at most as large as their values, and packed once more; a transposed
    // window exists twice.
    most = std::max(most, window * (action.part.transposed ? 4 : 3));
  }
  return static_cast<std::uint64_t>(most);
}

}  // namespace octavo
