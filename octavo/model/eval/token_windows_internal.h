// Texts as tokens in windows: which rows of hidden states belong together, and what each token is
// followed by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/model/eval/eval_model_internal.h"
#include "octavo/model/eval/eval_text.h"

namespace octavo::eval {

struct TokenizedText {
  std::string name{};
  std::vector<std::int32_t> ids{};
};

// Windows of one length and one text that pass a layer together.
struct WindowGroup {
  std::size_t text = 0;
  std::int64_t first = 0;  // row
  std::int64_t windows = 0, tokens = 0;
  [[nodiscard]] std::int64_t rows() const { return windows * tokens; }
};

// Tokens that pass a layer together, where a window has fewer. It is no option: sums of a product
// may depend on how many rows it has, and the result shall not depend on memory.
inline constexpr std::int64_t kGroupTokens = 2048;
inline constexpr std::int64_t kDefaultWindow = 2048;
inline constexpr std::int32_t kNoTarget = -1;

struct TokenWindows {
  std::int64_t window = 0;
  std::vector<TokenizedText> texts{};
  std::vector<WindowGroup> groups{};
  // Of every row: its token, and the token that follows in its window.
  std::vector<std::int32_t> ids{}, targets{};

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
};

// Texts as tokens of one of the models. Where several have a tokenizer they must agree. `most`: the
// maximum number of tokens of a text, its first; 0: all. Throws Error(invalid_argument) for fewer
// than two tokens and for ids beyond a vocabulary.
[[nodiscard]] std::vector<TokenizedText> tokenize_texts(const std::string& op,
                                                        std::span<const EvalModel* const> models,
                                                        std::span<const EvalText> texts,
                                                        std::int64_t most);

// `window` 0: kDefaultWindow or what the models can take, whichever is less. The last window of a
// text may be shorter; one of a single token, of which nothing is predicted, is left out.
[[nodiscard]] TokenWindows make_windows(const std::string& op,
                                        std::span<const EvalModel* const> models,
                                        std::vector<TokenizedText> texts, std::int64_t window);

// A number that other tokens would not have.
[[nodiscard]] std::uint64_t tokens_hash(const TokenizedText& text);

}  // namespace octavo::eval
