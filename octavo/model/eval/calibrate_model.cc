#include <filesystem>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/hexadecimal.h"
#include "octavo/model/eval/calibrate.h"
#include "octavo/model/eval/layer_walk_internal.h"
#include "octavo/model/eval/statistics_collector_internal.h"
#include "octavo/model/eval/token_windows_internal.h"
#include "octavo/version.h"

namespace octavo::eval {

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
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < model.shape().layers; ++i) total += model.layer_nbytes(i);
  EvalProgress progress(kOp, options.on_progress, total);
  const LayerObserver observer = collector.observer();
  const WalkedModel walked[] = {{&model, &hidden}};
  const LayerWalk walk{.models = walked,
                       .windows = &windows,
                       .reads_ahead = plan.reads_ahead,
                       .observer = &observer,
                       .progress = &progress,
                       .after_layer = [&](std::int64_t) { collector.finish_layer(); }};
  walk_embedding(walk);
  walk_layers(walk);
  ModelStatistics out = collector.take();
  out.origin = {.model = model.name(),
                .fingerprint = model.fingerprint(),
                .tokens = windows.rows(),
                .made_by = text("octavo ", version())};
  for (const TokenizedText& one : windows.texts)
    out.origin.texts.push_back(text(one.name, " (", hex_of(tokens_hash(one)), ")"));
  return out;
}

}  // namespace octavo::eval
