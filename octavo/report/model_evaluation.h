// ModelEvaluation: how well models still predict a text, several side by side against an original,
// as JSON and as one self-contained HTML page. docs/numerics/metrics.md defines every number.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "octavo/base/macros.h"

namespace octavo {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A mean and its standard error, both NaN where there is nothing to take it of.
struct Estimate {
  double value = kUnknown, error = kUnknown;
};

// Hidden states beside the original's, averaged over tokens.
struct LayerDifference {
  double cosine = kUnknown;
  double relative_error = kUnknown;  // root of the mean of |h - h0|^2 / |h0|^2
};

// KL(original || model) of each scored token: its mean, and how it is spread.
struct Divergence {
  Estimate mean{};
  double median = kUnknown, percentile_99 = kUnknown, largest = kUnknown;
};

// Of one text, or of all.
struct TextEvaluation {
  std::string text{};       // its name; empty for all of them
  std::int64_t tokens = 0;  // read
  std::int64_t scored = 0;  // predicted: all but the first of each window
  Estimate log_loss{};      // negative log-likelihood of a token, in nats
  Estimate perplexity{};    // exp of it

  // Against the original; unknown without one.
  Divergence kl{};
  Estimate agreement{};                   // share of tokens whose most likely successor is the same
  Estimate excess_loss{};                 // log_loss less the original's, token by token
  std::vector<LayerDifference> layers{};  // of the embedding, then after each layer
};

struct EvaluatedModel {
  std::string model{};  // its path
  bool is_original = false;
  TextEvaluation total{};
  std::vector<TextEvaluation> texts{};
};

struct ModelEvaluation {
  std::string title{};
  std::string against{};  // path of the original; empty without one
  std::int64_t window = 0, tokens = 0;
  double seconds = 0;
  std::vector<EvaluatedModel> models{};  // the original first
  std::vector<std::string> notes{};
};

[[nodiscard]] OCTAVO_API std::string json_of(const ModelEvaluation& evaluation);
[[nodiscard]] OCTAVO_API std::string html_of(const ModelEvaluation& evaluation);

}  // namespace octavo
