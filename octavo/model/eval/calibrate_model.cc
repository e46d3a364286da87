#include <algorithm>
#include <filesystem>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/model/eval/calibrate.h"
#include "octavo/model/eval/calibration_files_internal.h"
#include "octavo/model/eval/layer_walk_internal.h"
#include "octavo/model/eval/statistics_collector_internal.h"
#include "octavo/model/eval/token_windows_internal.h"
#include "octavo/model/eval/walk_state_internal.h"
#include "octavo/version.h"

namespace octavo::eval {
namespace {

StatisticsOrigin origin_of(const EvalModel& model, const TokenWindows& windows) {
  StatisticsOrigin out{.model = model.name(),
                       .fingerprint = model.fingerprint(),
                       .tokens = windows.rows(),
                       .made_by = text("octavo ", version())};
  for (const TokenizedText& one : windows.texts)
    out.texts.push_back(text(one.name, " (", hex_of(tokens_hash(one)), ")"));
  return out;
}

}  // namespace

ModelStatistics calibrate_model(const EvalModel& model, const CalibrateOptions& options) {
  constexpr const char* kOp = "calibrate";
  const EvalModel* const models[] = {&model};
  StatisticsCollector collector(options);  // which looks at the expression first
  const StatisticsCollector::Needs needs = collector.needs(model);
  const TokenWindows windows = make_windows(
      kOp, models, tokenize_texts(kOp, models, options.texts, options.tokens), options.window);
  const MemoryPlan plan = plan_memory(
      kOp, models, windows, options.max_memory, needs.bytes,
      text("the statistics of ", needs.modules, needs.modules == 1 ? " module" : " modules",
           needs.full > 0 ? text(", ", needs.full, " with the Hessian of all channels") : ""));
  HiddenStates hidden(kOp, windows.rows(), model.shape().hidden,
                      !plan.spills                ? ""
                      : options.temporary.empty() ? std::filesystem::temp_directory_path().string()
                                                  : options.temporary);
  const StatisticsOrigin origin = origin_of(model, windows);
  const CalibrationFiles files(options.resume);
  WalkState state(kOp, options.resume, models, windows,
                  Json::object({{"Hessians of blocks", options.block_hessians},
                                {"Hessians of all channels", options.full_hessians}}));
  Differences none;
  const std::int64_t restored = state.restore({&hidden, 1}, none),
                     first = std::max<std::int64_t>(0, restored);
  for (std::int64_t layer = 0; layer < first; ++layer) collector.add(files.load(layer, origin));
  std::int64_t total = 0;
  for (std::int64_t i = first; i < model.shape().layers; ++i) total += model.layer_nbytes(i);
  EvalProgress progress(kOp, options.on_progress, total);
  if (state.exists()) progress.say_on_cancel("the same command goes on from the last layer");
  const LayerObserver observer = collector.observer();
  const WalkedModel walked[] = {{&model, &hidden}};
  const LayerWalk walk{.models = walked,
                       .windows = &windows,
                       .first_layer = first,
                       .reads_ahead = plan.reads_ahead,
                       .observer = &observer,
                       .progress = &progress,
                       .after_layer = [&](std::int64_t layer) {
                         ModelStatistics seen = collector.finish_layer();
                         if (layer >= 0) {
                           seen.origin = origin;
                           files.store(layer, seen);
                         }
                         collector.add(std::move(seen));
                         state.store(layer + 1, {&hidden, 1}, none);
                       }};
  if (restored < 0) walk_embedding(walk);
  walk_layers(walk);
  ModelStatistics out = collector.take();
  out.origin = origin;
  if (!options.keep_state && state.exists()) {
    files.remove();
    state.remove();
  }
  return out;
}

}  // namespace octavo::eval
