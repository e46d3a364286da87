#include "octavo/model/eval/layer_walk_internal.h"

#include <algorithm>
#include <future>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/file/freed_memory_internal.h"
#include "octavo/model/eval/head_pass_internal.h"
#include "octavo/tensor/reused_memory_internal.h"

namespace octavo::eval {
namespace {

std::string mebibytes(std::uint64_t bytes) { return text((bytes + (1U << 20) - 1) >> 20, " MiB"); }

std::span<const std::int32_t> ids_of(const TokenWindows& windows, const WindowGroup& group) {
  return std::span(windows.ids)
      .subspan(static_cast<std::size_t>(group.first), static_cast<std::size_t>(group.rows()));
}

}  // namespace

MemoryPlan plan_memory(const std::string& op, std::span<const EvalModel* const> models,
                       const TokenWindows& windows, std::uint64_t most, std::uint64_t besides,
                       const std::string& besides_what) {
  std::int64_t layer = 0, scratch = 0, hidden = 0, row = 0, group_rows = 0;
  for (const WindowGroup& group : windows.groups) group_rows = std::max(group_rows, group.rows());
  for (const EvalModel* model : models) {
    for (std::int64_t i = 0; i < model->shape().layers; ++i)
      layer = std::max(layer, model->layer_nbytes(i));
    scratch = std::max(scratch, model->scratch_nbytes(group_rows));
    row = std::max<std::int64_t>(row, model->shape().hidden * 4);
    hidden += windows.rows() * model->shape().hidden * 4;
  }
  // A group's hidden states, and the original's beside them.
  const auto least = static_cast<std::uint64_t>(std::max<std::int64_t>(
                         layer + scratch + 2 * group_rows * row, head_nbytes(models))) +
                     besides;
  check(least <= most, ErrorCode::invalid_argument, op, "got max_memory of ", mebibytes(most),
        "; expected ", mebibytes(least), " at least for these models: a layer's weights (",
        mebibytes(static_cast<std::uint64_t>(layer)), ") and what ", group_rows,
        " tokens need in it",
        besides_what.empty() ? "" : text(", and ", mebibytes(besides), " for ", besides_what),
        "; allow more, or make the windows shorter");
  const std::uint64_t with_hidden = least + static_cast<std::uint64_t>(hidden);
  const bool spills = with_hidden > most;
  const std::uint64_t used = spills ? least : with_hidden;
  return {.spills = spills,
          .reads_ahead = used + static_cast<std::uint64_t>(layer) <= most,
          .bytes = used};
}

void walk_embedding(const LayerWalk& walk) {
  Tensor buffer;
  for (std::size_t at = 0; at < walk.models.size(); ++at) {
    const WalkedModel& model = walk.models[at];
    for (const WindowGroup& group : walk.windows->groups) {
      const View rows =
          model.hidden->is_in_memory()
              ? model.hidden->fetch(group.first, group.rows(), buffer)
              : (buffer = Tensor::values({group.rows(), model.hidden->hidden()}, DType::f32))
                    .view();
      model.model->embed(ids_of(*walk.windows, group), rows);
      model.hidden->keep(group.first, rows);
      if (walk.after_group) walk.after_group(at, -1, group, rows);
    }
  }
  if (walk.after_layer) walk.after_layer(-1);
}

void walk_layers(const LayerWalk& walk) {
  const std::int64_t layers = walk.models[0].model->shape().layers;
  const auto groups = static_cast<std::int64_t>(walk.windows->groups.size());
  struct Step {
    std::int64_t layer = 0;
    std::size_t model = 0;
  };
  std::vector<Step> steps;
  for (std::int64_t layer = walk.first_layer; layer < layers; ++layer)
    for (std::size_t model = 0; model < walk.models.size(); ++model)
      steps.push_back({layer, model});
  Tensor buffer;
  std::future<EvalLayer> ahead;  // its destructor waits: nothing outlives the models
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const auto [index, of] = steps[at];
    const WalkedModel& model = walk.models[of];
    EvalLayer layer = ahead.valid() ? ahead.get() : model.model->load_layer(index);
    if (walk.reads_ahead && at + 1 < steps.size())
      ahead = std::async(std::launch::async,
                         [&walk, next = steps[at + 1], memory = ReusedMemory::current()] {
                           const ReusedMemory::Scope reuse(memory);
                           return walk.models[next.model].model->load_layer(next.layer);
                         });
    const std::int64_t bytes = model.model->layer_nbytes(index);
    const std::string current = text("layer ", index, " of ", model.model->name());
    for (std::int64_t i = 0; i < groups; ++i) {
      const WindowGroup& group = walk.windows->groups[static_cast<std::size_t>(i)];
      const View rows = model.hidden->fetch(group.first, group.rows(), buffer);
      View hidden =
          value_view(rows.data, DType::f32, {group.windows, group.tokens, model.hidden->hidden()});
      layer(hidden, walk.observer);
      model.hidden->keep(group.first, rows);
      if (walk.after_group) walk.after_group(of, index, group, rows);
      walk.progress->show(bytes, i + 1, groups, current);
    }
    walk.progress->finish(bytes);
    layer = {};
    return_freed_memory();
    if (of + 1 == walk.models.size() && walk.after_layer) walk.after_layer(index);
  }
}

}  // namespace octavo::eval
