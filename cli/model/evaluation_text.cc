#include "cli/model/evaluation_text.h"

#include <algorithm>
#include <cmath>

#include "cli/checkpoint/name_column.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

constexpr std::size_t kRows = 12;  // of layers; a page has them all

std::string with_error(const Estimate& estimate, double times = 1) {
  if (std::isnan(estimate.value)) return "-";
  if (std::isnan(estimate.error)) return formatted("{:.5g}", times * estimate.value);
  return formatted("{:.5g} +- {:.2g}", times * estimate.value, times * estimate.error);
}

constexpr const char* kColumns = "{:>18} {:>20} {:>20} {:>18} {:>10}";

std::string row_of(const ModelEvaluation& evaluation, const EvaluatedModel& model,
                   const TextEvaluation& seen, const NameColumn& names, const std::string& name) {
  if (evaluation.against.empty())
    return names.row("", name, formatted("{:>18}", with_error(seen.perplexity))) + "\n";
  if (model.is_original)
    return names.row("", name, formatted("{:>18}  the original", with_error(seen.perplexity))) +
           "\n";
  const double cosine = seen.layers.empty() ? kUnknown : seen.layers.back().cosine;
  return names.row("", name,
                   formatted(kColumns, with_error(seen.perplexity), with_error(seen.excess_loss),
                             with_error(seen.kl.mean), with_error(seen.agreement, 100),
                             formatted("{:.6f}", cosine))) +
         "\n";
}

std::string layers_text(const ModelEvaluation& evaluation) {
  std::vector<const EvaluatedModel*> models;
  for (const EvaluatedModel& model : evaluation.models)
    if (!model.total.layers.empty()) models.push_back(&model);
  if (models.empty()) return "";
  std::string out = "\n  after layer   relative error %";
  out += models.size() > 1 ? ", model by model\n" : "\n";
  const std::size_t points = models[0]->total.layers.size();
  const std::size_t every = std::max<std::size_t>(1, (points + kRows - 1) / kRows);
  for (std::size_t at = 0; at < points; ++at) {
    // The last one whatever the step.
    if (at % every != 0 && at + 1 != points) continue;
    out += formatted("  {:>11}  ", at == 0 ? std::string("embedding") : std::to_string(at - 1));
    for (const EvaluatedModel* model : models)
      out += formatted(" {:>10.4g}", 100 * model->total.layers[at].relative_error);
    out += "\n";
  }
  return out;
}

}  // namespace

std::string evaluation_text(const ModelEvaluation& evaluation) {
  const Style style(stdout);
  std::string out = style.bold(formatted("{} tokens in windows of {}", grouped(evaluation.tokens),
                                         grouped(evaluation.window)));
  out += formatted("  {:.2f} s\n", evaluation.seconds);
  NameColumn names(14, evaluation.against.empty() ? 20 : 92);
  for (const EvaluatedModel& model : evaluation.models) names.fit(octavo::shown(model.model, 160));
  const std::string heads =
      evaluation.against.empty()
          ? formatted("{:>18}", "perplexity")
          : formatted(kColumns, "perplexity", "loss added", "KL", "same top token %", "cosine");
  const auto table = [&](auto&& seen_of) {
    out += style.dim(names.row("", "model", heads)) + "\n";
    for (const EvaluatedModel& model : evaluation.models)
      out += row_of(evaluation, model, seen_of(model), names, octavo::shown(model.model, 160));
  };
  table([](const EvaluatedModel& model) -> const TextEvaluation& { return model.total; });
  if (!evaluation.models.empty() && evaluation.models[0].texts.size() > 1)
    for (std::size_t i = 0; i < evaluation.models[0].texts.size(); ++i) {
      out += formatted("\n  {}\n", octavo::shown(evaluation.models[0].texts[i].text, 160));
      table([&](const EvaluatedModel& model) -> const TextEvaluation& { return model.texts[i]; });
    }
  out += layers_text(evaluation);
  out +=
      "\n  +-: one standard error. Losses and KL are in nats a token; cosine: of hidden states "
      "after the last layer.\n";
  for (const std::string& note : evaluation.notes)
    out += "  note: " + octavo::shown(note, 400) + "\n";
  return out;
}

}  // namespace octavo::cli
