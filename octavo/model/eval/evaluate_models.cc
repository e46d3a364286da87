#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/model/eval/evaluate_internal.h"
#include "octavo/model/eval/head_pass_internal.h"
#include "octavo/model/eval/layer_walk_internal.h"
#include "octavo/model/eval/walk_state_internal.h"
#include "octavo/tensor/reused_memory_internal.h"

namespace octavo::eval {
namespace {

constexpr const char* kOp = "eval";

// Models side by side walk in step and share tokens.
void check_shapes(std::span<const EvalModel* const> models) {
  const EvalShape& first = models[0]->shape();
  for (const EvalModel* model : models) {
    const EvalShape& shape = model->shape();
    check(shape.layers == first.layers && shape.hidden == first.hidden &&
              shape.vocabulary == first.vocabulary,
          ErrorCode::invalid_argument, kOp, "'", shown(model->name(), 200), "' has ", shape.layers,
          " layers, a width of ", shape.hidden, " and ", shape.vocabulary, " tokens, '",
          shown(models[0]->name(), 200), "' ", first.layers, ", ", first.hidden, " and ",
          first.vocabulary, "; expected models of one shape; evaluate them one by one");
  }
}

std::int64_t bytes_of(std::span<const EvalModel* const> models, std::int64_t layers) {
  std::int64_t bytes = 0;
  for (const EvalModel* model : models)
    for (std::int64_t i = 0; i < layers; ++i) bytes += model->layer_nbytes(i);
  return bytes;
}

void note_non_finite(const std::vector<std::vector<TokenSums>>& sums,
                     std::span<const EvalModel* const> models, const TokenWindows& windows,
                     std::vector<std::string>& notes) {
  for (std::size_t model = 0; model < models.size(); ++model) {
    std::int64_t count = 0;
    for (std::size_t row = 0; row < sums[model].size(); ++row)
      if (windows.targets[row] != kNoTarget && !std::isfinite(sums[model][row].log_loss())) ++count;
    if (count > 0)
      notes.push_back(text("'", shown(models[model]->name(), 200),
                           "' has logits that are not "
                           "finite at ",
                           count, " tokens: its numbers mean nothing"));
  }
}

}  // namespace

ModelEvaluation evaluate_models(std::span<const EvalModel* const> models,
                                const EvaluateOptions& options) {
  check_shapes(models);
  const bool is_compared = !options.against.empty();
  const TokenWindows windows = make_windows(
      kOp, models, tokenize_texts(kOp, models, options.texts, options.tokens), options.window);
  const MemoryPlan plan = plan_memory(
      kOp, models, windows, options.max_memory,
      static_cast<std::uint64_t>(windows.rows()) * (sizeof(TokenSums) * models.size() + 8));
  // Layers have the same sizes: fresh pages for each would be cleared again and again. Only what
  // the limit leaves over may wait to be taken.
  const std::uint64_t left = options.max_memory - std::min(options.max_memory, plan.bytes);
  const ReusedMemory memory(static_cast<std::int64_t>(
      std::min<std::uint64_t>(left, static_cast<std::uint64_t>(ReusedMemory::kMostFreeBytes))));
  const ReusedMemory::Scope reuse(memory);
  const std::string folder = !plan.spills ? ""
                             : options.temporary.empty()
                                 ? std::filesystem::temp_directory_path().string()
                                 : options.temporary;
  std::vector<HiddenStates> hidden;
  std::vector<WalkedModel> walked;
  for (const EvalModel* model : models)
    hidden.emplace_back(kOp, windows.rows(), model->shape().hidden, folder);
  for (std::size_t i = 0; i < models.size(); ++i) walked.push_back({models[i], &hidden[i]});

  const auto layers = static_cast<std::size_t>(models[0]->shape().layers);
  Differences differences(models.size(),
                          std::vector<std::vector<DifferenceSums>>(
                              layers + 1, std::vector<DifferenceSums>(windows.texts.size())));
  WalkState state(kOp, options.resume, models, windows,
                  Json::object({{"against the first", is_compared}}));
  const std::int64_t restored = state.restore(hidden, differences);

  std::int64_t total = bytes_of(models, static_cast<std::int64_t>(layers)) -
                       bytes_of(models, std::max<std::int64_t>(0, restored));
  for (const EvalModel* model : models) total += head_weight_nbytes(*model);
  EvalProgress progress(kOp, options.on_progress, total);
  if (state.exists()) progress.say_on_cancel("the same command goes on from the last layer");
  Tensor of_original;
  const LayerWalk walk{
      .models = walked,
      .windows = &windows,
      .first_layer = std::max<std::int64_t>(0, restored),
      .reads_ahead = plan.reads_ahead,
      .progress = &progress,
      .after_group =
          [&](std::size_t model, std::int64_t layer, const WindowGroup& group, const View& rows) {
            if (!is_compared || model == 0) return;
            const View original = hidden[0].fetch(group.first, group.rows(), of_original);
            differences[model][static_cast<std::size_t>(layer + 1)][group.text].add(
                difference_of(original, rows, options.threads));
          },
      .after_layer = [&](std::int64_t layer) { state.store(layer + 1, hidden, differences); }};
  if (restored < 0) walk_embedding(walk);
  walk_layers(walk);
  const std::vector<std::vector<TokenSums>> sums = head_pass(walk, is_compared, options.threads);

  ModelEvaluation out{.title = is_compared ? models[0]->name() : models.back()->name(),
                      .against = options.against,
                      .window = windows.window,
                      .models = conclude(models, windows, sums, differences, is_compared)};
  for (const TokenizedText& one : windows.texts)
    out.tokens += static_cast<std::int64_t>(one.ids.size());
  note_non_finite(sums, models, windows, out.notes);
  if (!options.keep_state) state.remove();
  out.seconds = progress.seconds();
  return out;
}

}  // namespace octavo::eval
