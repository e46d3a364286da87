// The model card: README.md of an output folder, with the front matter that Hugging Face reads. It
// stands in the source's own README.md, of which nothing is lost: what octavo adds can be told from
// the rest, and is taken out again when the folder becomes another (convert, dequantize).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

inline constexpr std::string_view kModelCard = "README.md";

struct ModelCard {
  std::string base_model;         // "HuggingFaceTB/SmolLM2-135M"; empty where it is not known
  std::vector<std::string> tags;  // of the front matter
  std::string body;               // Markdown
};
// `provenance` is what config.json gets under "octavo", with the errors.
[[nodiscard]] ModelCard model_card(const CheckpointReader& source, const QuantizePlan& plan,
                                   const Json& provenance);

// The text of a README.md with a card in it: front matter of both, then the card, then the text.
[[nodiscard]] std::string with_card(std::string_view readme, const ModelCard& card);
// Without the card that with_card() put there; any other text as it is.
[[nodiscard]] std::string without_card(std::string_view readme);

}  // namespace octavo
