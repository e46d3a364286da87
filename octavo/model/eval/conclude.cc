// From sums over tokens to means with their standard errors: docs/numerics/metrics.md.
#include <algorithm>
#include <cmath>

#include "octavo/model/eval/evaluate_internal.h"

namespace octavo::eval {
namespace {

// The standard deviation of the mean, for tokens taken as independent.
Estimate mean_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  double sum = 0.0;
  for (const double value : values) sum += value;
  const double mean = sum / n;
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {.value = mean,
          .error = values.size() < 2 ? kUnknown : std::sqrt(squares / (n - 1.0) / n)};
}

// The value with a share of the others below it, between its neighbours where it falls there.
double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Divergence divergence_over(std::vector<double> kl) {
  Divergence out{.mean = mean_of(kl)};
  if (kl.empty() || std::isnan(out.mean.value)) return out;
  std::sort(kl.begin(), kl.end());
  out.median = quantile(kl, 0.5);
  out.percentile_99 = quantile(kl, 0.99);
  out.largest = kl.back();
  return out;
}

// Of the scored tokens of one text, or of several.
struct Tokens {
  std::vector<double> loss{}, kl{}, agrees{}, excess{};

  void add(const TokenSums& own, const TokenSums* original) {
    loss.push_back(own.log_loss());
    if (original == nullptr) return;
    kl.push_back(divergence_of(*original, own));
    agrees.push_back(own.top == original->top ? 1.0 : 0.0);
    excess.push_back(own.log_loss() - original->log_loss());
  }
  void add(const Tokens& more) {
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(loss, more.loss);
    append(kl, more.kl);
    append(agrees, more.agrees);
    append(excess, more.excess);
  }
  void conclude(TextEvaluation& out) const {
    out.scored = static_cast<std::int64_t>(loss.size());
    out.log_loss = mean_of(loss);
    // To first order: d exp(x) = exp(x) dx.
    out.perplexity.value = std::exp(out.log_loss.value);
    out.perplexity.error = out.perplexity.value * out.log_loss.error;
    out.kl = divergence_over(kl);
    out.agreement = mean_of(agrees);
    out.excess_loss = mean_of(excess);
  }
};

}  // namespace

std::vector<EvaluatedModel> conclude(std::span<const EvalModel* const> models,
                                     const TokenWindows& windows,
                                     const std::vector<std::vector<TokenSums>>& sums,
                                     const Differences& differences, bool against_first) {
  std::vector<EvaluatedModel> out;
  const auto layers = static_cast<std::size_t>(models[0]->shape().layers) + 1;
  for (std::size_t model = 0; model < models.size(); ++model) {
    const bool is_compared = against_first && model > 0;
    EvaluatedModel one{.model = models[model]->name(), .is_original = against_first && model == 0};
    Tokens all;
    std::vector<DifferenceSums> all_layers(layers);
    for (std::size_t text = 0; text < windows.texts.size(); ++text) {
      TextEvaluation of_text{.text = windows.texts[text].name,
                             .tokens = static_cast<std::int64_t>(windows.texts[text].ids.size())};
      Tokens tokens;
      for (const WindowGroup& group : windows.groups) {
        if (group.text != text) continue;
        for (std::int64_t row = group.first; row < group.first + group.rows(); ++row) {
          const auto at = static_cast<std::size_t>(row);
          if (windows.targets[at] != kNoTarget)
            tokens.add(sums[model][at], is_compared ? &sums[0][at] : nullptr);
        }
      }
      tokens.conclude(of_text);
      for (std::size_t layer = 0; is_compared && layer < layers; ++layer) {
        const DifferenceSums& difference = differences[model][layer][text];
        of_text.layers.push_back(difference.difference());
        all_layers[layer].add(difference);
      }
      all.add(tokens);
      one.total.tokens += of_text.tokens;
      one.texts.push_back(std::move(of_text));
    }
    all.conclude(one.total);
    for (std::size_t layer = 0; is_compared && layer < layers; ++layer)
      one.total.layers.push_back(all_layers[layer].difference());
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace octavo::eval
