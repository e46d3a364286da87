#include "octavo/report/model_evaluation.h"

#include <utility>

#include "octavo/base/json/json.h"

namespace octavo {
namespace {

Json json_of_estimate(const Estimate& estimate) {
  return Json::object({{"value", estimate.value}, {"standard_error", estimate.error}});
}

// What is known of a text; members against an original are there where there is one.
Json json_of_text(const TextEvaluation& text, bool is_compared) {
  Json out = Json::object({{"tokens", text.tokens},
                           {"scored", text.scored},
                           {"perplexity", json_of_estimate(text.perplexity)},
                           {"log_loss", json_of_estimate(text.log_loss)}});
  if (!text.text.empty()) out.set("text", text.text);
  if (!is_compared) return out;
  Json kl = json_of_estimate(text.kl.mean);
  kl.set("median", text.kl.median);
  kl.set("percentile_99", text.kl.percentile_99);
  kl.set("largest", text.kl.largest);
  out.set("kl", std::move(kl));
  out.set("agreement", json_of_estimate(text.agreement));
  out.set("excess_loss", json_of_estimate(text.excess_loss));
  Json layers = Json::array();
  for (const LayerDifference& layer : text.layers)
    layers.push(Json::object({{"cosine", layer.cosine}, {"relative_error", layer.relative_error}}));
  out.set("layers", std::move(layers));
  return out;
}

}  // namespace

std::string json_of(const ModelEvaluation& evaluation) {
  Json models = Json::array(), notes = Json::array();
  for (const EvaluatedModel& model : evaluation.models) {
    const bool is_compared = !evaluation.against.empty() && !model.is_original;
    Json texts = Json::array();
    for (const TextEvaluation& text : model.texts) texts.push(json_of_text(text, is_compared));
    models.push(Json::object({{"model", model.model},
                              {"is_original", model.is_original},
                              {"total", json_of_text(model.total, is_compared)},
                              {"texts", std::move(texts)}}));
  }
  for (const std::string& note : evaluation.notes) notes.push(note);
  return Json::object({{"title", evaluation.title},
                       {"verb", "evaluate"},
                       {"against", evaluation.against.empty() ? Json() : Json(evaluation.against)},
                       {"window", evaluation.window},
                       {"tokens", evaluation.tokens},
                       {"seconds", evaluation.seconds},
                       {"models", std::move(models)},
                       {"notes", std::move(notes)}})
      .dump();
}

}  // namespace octavo
