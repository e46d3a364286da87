// The page of a ModelEvaluation: the models side by side, and where along the layers each goes away
// from the original.
#include <algorithm>
#include <array>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/report/model_evaluation.h"
#include "octavo/report/page/page_internal.h"

namespace octavo {
namespace {

using page::brief;
using page::escaped;
using page::fixed;

constexpr std::size_t kLineStyles = 6;  // .line0 to .line5 of page_style.cc

std::string head_of(const ModelEvaluation& evaluation) {
  const auto models = static_cast<std::int64_t>(evaluation.models.size());
  return text(
      "<header><h1>", escaped(evaluation.title), "</h1><p class=\"soft\">", page::grouped(models),
      models == 1 ? " model" : " models", " on ", page::grouped(evaluation.tokens),
      " tokens in windows of ", page::grouped(evaluation.window),
      evaluation.against.empty() ? "" : text(", held against ", escaped(evaluation.against)), "; ",
      fixed(evaluation.seconds, 1), " s</p></header>\n");
}

// Digits as far as the standard error lets them mean something, and one more.
std::string with_error(const Estimate& estimate, double times = 1) {
  const double value = times * estimate.value, error = times * estimate.error;
  if (std::isnan(value)) return "-";
  const int digits =
      error > 0 ? std::clamp(1 - static_cast<int>(std::floor(std::log10(error))), 0, 9) : 4;
  const std::string shown =
      std::fabs(value) < 1e-4 && value != 0 ? brief(value) : fixed(value, digits);
  return text(shown, std::isnan(error) ? std::string()
                                       : text(" <span class=\"soft\">± ", brief(error), "</span>"));
}

std::string cell(std::string_view label, const std::string& content) {
  return text("<td data-l=\"", label, "\">", content, "</td>");
}

std::string row_of(const ModelEvaluation& evaluation, const EvaluatedModel& model,
                   const TextEvaluation& seen, const std::string& name, std::string_view dot) {
  std::string out = text("<tr><td class=\"n mono\">", dot, name, "</td>",
                         cell("perplexity", with_error(seen.perplexity)));
  if (evaluation.against.empty())
    return out + cell("tokens", page::grouped(seen.scored)) + "</tr>\n";
  if (model.is_original)
    return out + "<td class=\"a\" colspan=\"5\">the original</td>" +
           cell("tokens", page::grouped(seen.scored)) + "</tr>\n";
  const double cosine = seen.layers.empty() ? kUnknown : seen.layers.back().cosine;
  return text(out, cell("loss added", with_error(seen.excess_loss)),
              cell("KL", with_error(seen.kl.mean)), cell("KL, 99 %", brief(seen.kl.percentile_99)),
              cell("same top token", with_error(seen.agreement, 100) + " %"),
              cell("cosine, last layer", page::cosine_text(cosine)),
              cell("tokens", page::grouped(seen.scored)), "</tr>\n");
}

std::string heads_of(const ModelEvaluation& evaluation) {
  std::string heads =
      page::head_cell("model", "its path", true) +
      page::head_cell("perplexity", "exp of the mean loss of a token; less is better");
  if (!evaluation.against.empty()) {
    heads +=
        page::head_cell("loss added", "mean loss less the original's, in nats, token by token");
    heads += page::head_cell("KL", "mean of KL(original || model), in nats");
    heads += page::head_cell("KL, 99 %", "99 of 100 tokens have less");
    heads += page::head_cell("same top token", "how often the most likely token is the original's");
    heads += page::head_cell("cosine, last layer", "of hidden states with the original's");
  }
  return heads + page::head_cell("tokens", "that were predicted");
}

std::string dot_of(const ModelEvaluation& evaluation, std::size_t model) {
  if (evaluation.against.empty() || evaluation.models[model].is_original) return "";
  return text("<i class=\"dot k", (model - 1) % kLineStyles, "\"></i>");
}

std::string side_by_side(const ModelEvaluation& evaluation) {
  std::string rows;
  for (std::size_t i = 0; i < evaluation.models.size(); ++i)
    rows += row_of(evaluation, evaluation.models[i], evaluation.models[i].total,
                   page::breakable(evaluation.models[i].model), dot_of(evaluation, i));
  return text(
      "<section><h2>Side by side</h2><p class=\"soft small\">± is one standard error, of "
      "tokens taken as independent.</p><div class=\"wrap\"><table class=\"cardrows\"><thead>"
      "<tr>",
      heads_of(evaluation), "</tr></thead><tbody>\n", rows, "</tbody></table></div></section>\n");
}

std::string by_text(const ModelEvaluation& evaluation) {
  if (evaluation.models.empty() || evaluation.models[0].texts.size() < 2) return "";
  std::string out;
  for (std::size_t at = 0; at < evaluation.models[0].texts.size(); ++at) {
    std::string rows;
    for (std::size_t i = 0; i < evaluation.models.size(); ++i)
      rows += row_of(evaluation, evaluation.models[i], evaluation.models[i].texts[at],
                     page::breakable(evaluation.models[i].model), dot_of(evaluation, i));
    out += text("<h3 class=\"mono\">", escaped(evaluation.models[0].texts[at].text),
                "</h3><div class=\"wrap\"><table class=\"cardrows\"><thead><tr>",
                heads_of(evaluation), "</tr></thead><tbody>\n", rows, "</tbody></table></div>\n");
  }
  return text("<section><h2>Text by text</h2>\n", out, "</section>\n");
}

// A picture with a line for each model: layers to the right, powers of ten upwards.
class LayerChart {
 public:
  explicit LayerChart(double (*value)(const LayerDifference&)) : value_(value) {}

  [[nodiscard]] std::string drawn(const ModelEvaluation& evaluation, std::string_view title,
                                  std::string_view axis) {
    for (const EvaluatedModel& model : evaluation.models)
      for (const LayerDifference& layer : model.total.layers) take(value_(layer));
    points_ = 0;
    for (const EvaluatedModel& model : evaluation.models)
      points_ = std::max(points_, model.total.layers.size());
    if (points_ < 2 || !(most_ > 0)) return "";
    low_ = std::floor(std::log10(least_));
    high_ = std::max(low_ + 1, std::ceil(std::log10(most_)));
    std::string lines;
    for (std::size_t i = 0; i < evaluation.models.size(); ++i) {
      const EvaluatedModel& model = evaluation.models[i];
      if (!model.total.layers.empty()) lines += line_of(model, (i - 1) % kLineStyles);
    }
    return text("<figure class=\"chart\"><figcaption>", title, "</figcaption><svg viewBox=\"0 0 ",
                fixed(kWidth + kLeft + kRight, 0), " ", fixed(kHeight + kTop + kBottom, 0),
                "\" role=\"img\" aria-label=\"", title, "\">", grid(axis), lines,
                "</svg></figure>\n");
  }

 private:
  static constexpr double kWidth = 920, kHeight = 250, kLeft = 66, kRight = 14, kTop = 10,
                          kBottom = 40;

  void take(double value) {
    if (!(value > 0) || std::isinf(value)) return;
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
  }
  [[nodiscard]] double x(std::size_t point) const {
    return kLeft + kWidth * static_cast<double>(point) / static_cast<double>(points_ - 1);
  }
  // What is zero lies on the lower edge.
  [[nodiscard]] double y(double value) const {
    const double at = value > 0 ? std::clamp(std::log10(value), low_, high_) : low_;
    return kTop + kHeight * (high_ - at) / (high_ - low_);
  }

  [[nodiscard]] std::string line_of(const EvaluatedModel& model, std::size_t style) const {
    std::string path, marks;
    for (std::size_t i = 0; i < model.total.layers.size(); ++i) {
      const double value = value_(model.total.layers[i]);
      if (std::isnan(value)) continue;
      path += text(path.empty() ? "M" : "L", fixed(x(i), 1), " ", fixed(y(value), 1));
      marks += text("<circle class=\"mark\" cx=\"", fixed(x(i), 1), "\" cy=\"", fixed(y(value), 1),
                    "\" r=\"3\"><title>", escaped(model.model), ", ",
                    i == 0 ? std::string("embedding") : text("layer ", i - 1), ": ", brief(value),
                    "</title></circle>");
    }
    return text("<g class=\"line", style, "\"><path d=\"", path, "\"/>", marks, "</g>");
  }

  [[nodiscard]] std::string grid(std::string_view axis) const {
    std::string out;
    const int powers = static_cast<int>(high_ - low_), step = powers > 6 ? 2 : 1;
    for (int i = 0; i <= powers; i += step) {
      const int power = static_cast<int>(low_) + i;
      const double at = y(std::pow(10.0, power));
      out +=
          text("<path class=\"rule\" d=\"M", fixed(kLeft, 0), " ", fixed(at, 1), "h",
               fixed(kWidth, 0), "\"/><text x=\"", fixed(kLeft - 8, 0), "\" y=\"", fixed(at + 4, 1),
               "\" text-anchor=\"end\">",
               power >= -3 && power <= 0 ? fixed(std::pow(10.0, power), -power) : text("1e", power),
               "</text>");
    }
    const std::size_t layers = points_ - 1, every = std::max<std::size_t>(1, (layers + 15) / 16);
    out += text("<text x=\"", fixed(x(0), 1), "\" y=\"", fixed(kTop + kHeight + 18, 0),
                "\" text-anchor=\"middle\">in</text>");
    for (std::size_t layer = 0; layer < layers; layer += every)
      out += text("<text x=\"", fixed(x(layer + 1), 1), "\" y=\"", fixed(kTop + kHeight + 18, 0),
                  "\" text-anchor=\"middle\">", layer, "</text>");
    return text(out, "<text x=\"", fixed(kLeft + kWidth / 2, 0), "\" y=\"",
                fixed(kTop + kHeight + 36, 0), "\" text-anchor=\"middle\">", axis, "</text>");
  }

  double (*value_)(const LayerDifference&);
  double least_ = INFINITY, most_ = 0, low_ = 0, high_ = 0;
  std::size_t points_ = 0;
};

// The layer that adds most to a model's error: where its square grows by the largest part of its
// largest value.
std::string steepest(const EvaluatedModel& model) {
  std::size_t at = 0;
  double most = 0;
  for (std::size_t i = 1; i < model.total.layers.size(); ++i) {
    const double before = model.total.layers[i - 1].relative_error,
                 after = model.total.layers[i].relative_error;
    if (after * after - before * before > most) {
      most = after * after - before * before;
      at = i;
    }
  }
  if (at == 0) return "";
  return text("<li><code>", page::breakable(model.model), "</code>: the largest step is layer ",
              at - 1, ", from ", brief(100 * model.total.layers[at - 1].relative_error), " % to ",
              brief(100 * model.total.layers[at].relative_error), " %</li>\n");
}

std::string along_the_layers(const ModelEvaluation& evaluation) {
  if (evaluation.against.empty()) return "";
  std::string keys, steps;
  for (std::size_t i = 0; i < evaluation.models.size(); ++i) {
    const EvaluatedModel& model = evaluation.models[i];
    if (model.is_original) continue;
    keys += text("<span><i class=\"k", (i - 1) % kLineStyles, "\"></i>", escaped(model.model),
                 "</span>");
    steps += steepest(model);
  }
  const std::string error =
      LayerChart([](const LayerDifference& layer) { return layer.relative_error; })
          .drawn(evaluation, "Relative error of hidden states: root mean square over tokens",
                 "after layer");
  const std::string angle =
      LayerChart([](const LayerDifference& layer) {
        return 1 - layer.cosine;
      }).drawn(evaluation, "1 - cosine of hidden states: mean over tokens", "after layer");
  if (error.empty() && angle.empty())
    return "<section><h2>Along the layers</h2><p>Hidden states are the original's after every "
           "layer.</p></section>\n";
  return text(
      "<section><h2>Along the layers</h2><p class=\"soft small\">How far hidden states are "
      "from the original's after each layer, on a logarithmic scale; \"in\" is the "
      "embedding. A step upwards is where the answer is lost.</p><div class=\"key\">",
      keys, "</div>\n", error, angle,
      steps.empty() ? "" : text("<ul class=\"small\">", steps, "</ul>"), "</section>\n");
}

std::string notes_of(const ModelEvaluation& evaluation) {
  std::string items;
  for (const std::string& note : evaluation.notes) items += text("<li>", escaped(note), "</li>");
  return items.empty() ? "" : text("<section><h2>Notes</h2><ul>", items, "</ul></section>\n");
}

}  // namespace

std::string html_of(const ModelEvaluation& evaluation) {
  return page::document(
      evaluation.title,
      text(head_of(evaluation), side_by_side(evaluation), along_the_layers(evaluation),
           by_text(evaluation), notes_of(evaluation)),
      "Made by octavo. Perplexity is exp of the mean negative log-likelihood of a token that its "
      "window predicts; KL and losses are in nats.");
}

}  // namespace octavo
