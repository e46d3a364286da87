#include <algorithm>
#include <cmath>
#include <mutex>

#include "octavo/base/error.h"
#include "octavo/base/hash/row_hash_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"
#include "octavo/pipeline/plan/recipe_scaling_internal.h"
#include "octavo/pipeline/stream/amaxes_internal.h"
#include "octavo/pipeline/stream/decoded_values_internal.h"
#include "octavo/pipeline/stream/recast_internal.h"
#include "octavo/pipeline/stream/stream_files_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "quantize";
// Histograms sample the rows of a large tensor.
constexpr std::int64_t kCountedValues = 1 << 16, kFewestRows = 128;
std::int64_t histogram_every(const TensorAction& action) {
  return std::clamp<std::int64_t>(element_count(action.weight.shape) / kCountedValues, 1,
                                  kFewestRows);
}

// Per-thread memory, reused for every row block.
struct Workspace {
  Window window;
  QuantizedTensor row_block;
  Tensor wide_scales;
};

bool same_memory(const QuantizedTensor& row_block, const Shape& shape, const Scaling& scaling) {
  return row_block.rowwise.exists() && row_block.shape == shape && row_block.scaling == scaling;
}

class Streaming {
 public:
  Streaming(const CheckpointReader& source, const QuantizePlan& plan,
            const QuantizeCheckpointOptions& options, const Destination& destination)
      : source_(source),
        plan_(plan),
        options_(options),
        nowhere_(destination.is_nowhere()),
        share_(destination.share),
        results_(plan.actions.size()),
        files_(source, plan, options, destination, results_),
        amaxes_(source, plan),
        row_blocks_of_(plan.actions.size(), 0),
        row_blocks_done_(plan.actions.size(), 0) {
    for (const RowBlock& row_block : all_row_blocks()) {
      const std::size_t file = plan.actions[row_block.action].file;
      if (files_.is_finished(file)) continue;
      if (nowhere_ && !plan.actions[row_block.action].quantize) continue;  // not measured
      files_.expect_row_block(file);
      ++row_blocks_of_[row_block.action];
      row_blocks_.push_back(row_block);
    }
    find_amax_row_blocks();
  }

  std::vector<ActionResult> run() {
    files_.check_room();
    std::uint64_t bytes = 0;
    for (const RowBlock& row_block : row_blocks_) bytes += bytes_of(row_block);
    for (const RowBlock& row_block : amax_row_blocks_) bytes += looked_at(row_block);
    const int threads = threads_within_memory(source_, plan_, options_, row_blocks_);
    workspaces_.resize(static_cast<std::size_t>(threads));
    WorkLoop loop(threads, bytes, options_.on_progress, options_.every_row_block);
    loop.run(amax_row_blocks_.size(), [&](int thread, std::size_t i) {
      amaxes_.look_at(workspaces_[static_cast<std::size_t>(thread)].window, amax_row_blocks_[i]);
      loop.advance(looked_at(amax_row_blocks_[i]), name_of_action(amax_row_blocks_[i]));
    });
    amaxes_.share(share_ != nullptr ? share_->group_amaxes : nullptr);
    files_.finish_empty();
    loop.run(row_blocks_.size(), [&](int thread, std::size_t i) {
      process_row_block(workspaces_[static_cast<std::size_t>(thread)], row_blocks_[i]);
      loop.advance(bytes_of(row_blocks_[i]), name_of_action(row_blocks_[i]));
    });
    loop.finish("");
    return std::move(results_);
  }

 private:
  [[nodiscard]] const TensorAction& action_of(const RowBlock& row_block) const {
    return plan_.actions[row_block.action];
  }
  [[nodiscard]] std::string_view name_of_action(const RowBlock& row_block) const {
    return source_.tensors()[action_of(row_block).tensor].name();
  }
  [[nodiscard]] std::uint64_t bytes_of(const RowBlock& row_block) const {
    return static_cast<std::uint64_t>(row_block.rows *
                                      row_layout(source_, action_of(row_block)).row_bytes);
  }

  // The weight of the amax pass in the progress: it takes about a quarter of the time of
  // quantizing, measuring and writing, and the time left is extrapolated from the progress.
  [[nodiscard]] std::uint64_t looked_at(const RowBlock& row_block) const {
    return bytes_of(row_block) / 4;
  }

  [[nodiscard]] std::vector<RowBlock> all_row_blocks() const {
    return share_ != nullptr ? split_row_blocks(source_, plan_, share_->file)
                             : split_row_blocks(source_, plan_);
  }

  // Its amax is known: of all members of a group whose others are in other files.
  [[nodiscard]] bool is_given(int group) const {
    return share_ != nullptr && group >= 0 &&
           !std::isnan((*share_->group_amaxes)[static_cast<std::size_t>(group)]);
  }

  // The amax pass reads all members of a group, also those of finished files: their codes came from
  // the amax of all.
  void find_amax_row_blocks() {
    std::vector<bool> wanted_group(static_cast<std::size_t>(plan_.groups), false);
    for (const RowBlock& row_block : row_blocks_)
      if (const int group = action_of(row_block).group; group >= 0 && !is_given(group))
        wanted_group[static_cast<std::size_t>(group)] = true;
    for (const RowBlock& row_block : all_row_blocks()) {
      const TensorAction& action = action_of(row_block);
      if (!needs_amax(action)) continue;
      const bool wanted = action.group >= 0 ? wanted_group[static_cast<std::size_t>(action.group)]
                                            : !files_.is_finished(action.file);
      if (wanted) amax_row_blocks_.push_back(row_block);
    }
  }

  void process_row_block(Workspace& work, const RowBlock& row_block) {
    const TensorAction& action = action_of(row_block);
    if (nowhere_) {
      quantize_row_block(work, row_block, nullptr);
      files_.row_block_is_done(action.file);
      return;
    }
    safetensors::FileWriter& writer = files_.writer_of(action.file);
    if (action.found) {
      convert_row_block(row_block, writer);
    } else if (action.quantize) {
      quantize_row_block(work, row_block, &writer);
    } else {
      copy_row_block(work, row_block, writer);
    }
    write_static_scales(row_block, writer);
    files_.row_block_is_done(action.file);
  }

  // With a tensor's first rows: what the plan put beside it.
  void write_static_scales(const RowBlock& row_block, safetensors::FileWriter& writer) {
    const TensorAction& action = action_of(row_block);
    if (row_block.first_row != 0) return;
    for (std::size_t i = own_outputs(plan_, action); i < action.outputs.size(); ++i)
      write_rows(action.outputs[i], 0,
                 std::as_bytes(std::span<const char>(action.outputs[i].constant)), writer);
  }

  // Existing codes, converted to another dialect or decoded.
  void convert_row_block(const RowBlock& row_block, safetensors::FileWriter& writer) {
    const TensorAction& action = action_of(row_block);
    const QuantizedTensor codes = read_row_block(source_, plan_.source_dialect, *action.found,
                                                 row_in_found(action, row_block), row_block.rows);
    if (action.quantize) {
      for (const RowBlockBytes& part :
           pack_row_block(plan_.options.target, action.weight, row_block.first_row, codes))
        write_rows(action.outputs[part.tensor], part.offset, part.bytes, writer);
    } else {
      const Tensor values = dequantize(codes, action.weight.source, {.threads = 1});
      settle_overflow(values, action.weight.name, row_block.first_row,
                      plan_.options.clamp_non_finite);
      const TensorAction& leader = action.joins ? plan_.actions[*action.joins] : action;
      write_decoded(values, action.part, row_block.first_row,
                    writer.at(leader.outputs.front().plan.name), writer);
    }
    const std::uint64_t content = content_of(codes, row_in_found(action, row_block));
    const std::lock_guard lock(merging_);
    results_[row_block.action].content += content;
  }

  void copy_row_block(Workspace& work, const RowBlock& row_block, safetensors::FileWriter& writer) {
    const TensorAction& action = action_of(row_block);
    std::uint64_t offset = 0;
    const auto bytes = work.window.read_bytes(source_, action, row_block, offset);
    const DialectTensor& output = action.outputs.front();
    const safetensors::StoredType from = source_.tensors()[action.tensor].entry->type;
    if (!output.constant.empty()) {
      writer.write(writer.at(output.plan.name), offset,
                   std::as_bytes(std::span<const char>(output.constant)));
    } else if (needs_recast(from, output.plan.type)) {
      const Tensor values = recast(bytes, from, output.plan.type);
      settle_overflow(values, source_.tensors()[action.tensor].name(), row_block.first_row,
                      plan_.options.clamp_non_finite);
      const auto element = offset * 8 / static_cast<std::uint64_t>(stored_bits(from));
      write_rows(output, element * static_cast<std::uint64_t>(stored_bits(output.plan.type)) / 8,
                 values.bytes(), writer);
    } else {
      write_rows(output, offset, bytes, writer);
    }
    const std::uint64_t content =
        content_hash(bytes, row_layout(source_, action).row_bytes, row_block.first_row);
    const NonFiniteFound found = safetensors::non_finite_in(bytes, from);
    const std::lock_guard lock(merging_);
    ActionResult& result = results_[row_block.action];
    result.content += content;
    result.found.nan += found.nan;
    result.found.inf += found.inf;
  }

  // Without a writer: measured only.
  void quantize_row_block(Workspace& work, const RowBlock& row_block,
                          safetensors::FileWriter* writer) {
    const TensorAction& action = action_of(row_block);
    const View values = work.window.read_values(source_, action, row_block);
    ContentHash content{.first_row = row_in_source(source_, action, row_block)};
    NonFiniteFound found;
    const float row_block_amax = checked_amax(values, source_, action, row_block,
                                              plan_.options.clamp_non_finite, found, &content);
    take_codes(work, values, row_block);
    if (options_.watch != nullptr)
      options_.watch->see(row_block.action, row_block.ordinal, values, work.row_block);
    RowBlockError error;
    if (options_.measure)
      error = measure_row_block(values, work.row_block,
                                {.histogram_every = histogram_every(action),
                                 .first_row = row_block.first_row,
                                 .amax = row_block_amax,
                                 .known_max_relative = known_max_relative(row_block)});
    error.input.nan += found.nan;
    error.input.inf += found.inf;
    if (writer != nullptr)
      for (const RowBlockBytes& part : pack_row_block(plan_.options.target, action.weight,
                                                      row_block.first_row, as_stored(work, action)))
        write_rows(action.outputs[part.tensor], part.offset, part.bytes, *writer);
    const std::lock_guard lock(merging_);
    ActionResult& result = results_[row_block.action];
    result.content += content.sum;
    result.found.nan += found.nan;
    result.found.inf += found.inf;
    if (!options_.measure) return;
    result.error.add(row_block.ordinal, error);
    if (++row_blocks_done_[row_block.action] == row_blocks_of_[row_block.action])
      result.error.settle();
  }

  // Rounded, or made before.
  void take_codes(Workspace& work, const View& values, const RowBlock& row_block) {
    const TensorAction& action = action_of(row_block);
    if (options_.codes != nullptr && options_.codes->has(action.weight.name)) {
      work.row_block =
          options_.codes->rows(action.weight.name, row_block.first_row, row_block.rows);
      check(work.row_block.scaling == action.scaling, ErrorCode::invalid_argument, kOp, "'",
            shown(action.weight.name, 200), "' was made as ", describe(work.row_block.scaling),
            "; expected ", describe(action.scaling));
      return;
    }
    if (!same_memory(work.row_block, values.shape, action.scaling))
      work.row_block = make_quantized(values.shape, values.dtype, action.scaling);
    QuantizeOptions options{.threads = 1};
    const float amax = amaxes_.of(row_block.action);
    if (has_tensor_scale(action.scaling)) options.given_amax = &amax;
    std::vector<float> weights;
    if (action.scaling.policy == AmaxPolicy::wmse) {
      weights = plan_.options.statistics->mean_square(action.weight.module);
      options.column_weights = weights;
    }
    quantize_into(values, work.row_block, options);
  }

  [[nodiscard]] float known_max_relative(const RowBlock& row_block) {
    const std::lock_guard lock(merging_);
    return static_cast<float>(results_[row_block.action].error.max_relative());
  }

  // Widens bf16 scales to f32 where the file stores f32.
  static QuantizedTensor as_stored(Workspace& work, const TensorAction& action) {
    QuantizedTensor row_block = work.row_block;
    if (action.scaling == action.weight.scaling) return row_block;
    const Tensor& narrow = work.row_block.rowwise.scales;
    if (work.wide_scales.owner() == nullptr || work.wide_scales.shape() != narrow.shape())
      work.wide_scales = Tensor::values(narrow.shape(), DType::f32);
    const auto from = narrow.span<std::uint16_t>();
    const auto to = work.wide_scales.span<std::uint32_t>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<std::uint32_t>(from[i]) << 16;
    row_block.scaling = action.weight.scaling;
    row_block.rowwise.scales = work.wide_scales;
    return row_block;
  }

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const QuantizeCheckpointOptions& options_;
  bool nowhere_;
  const FileShare* share_;  // null: all files
  std::vector<ActionResult> results_;
  StreamFiles files_;
  Amaxes amaxes_;
  std::vector<std::uint32_t> row_blocks_of_, row_blocks_done_;  // per action
  std::vector<RowBlock> row_blocks_, amax_row_blocks_;
  std::vector<Workspace> workspaces_;
  std::mutex merging_;
};

}  // namespace

std::vector<ActionResult> stream_checkpoint(const CheckpointReader& source,
                                            const QuantizePlan& plan,
                                            const QuantizeCheckpointOptions& options,
                                            const Destination& destination) {
  return Streaming(source, plan, options, destination).run();
}

}  // namespace octavo
