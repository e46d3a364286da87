#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/hash/row_hash_internal.h"
#include "octavo/model/eval/token_windows_internal.h"

namespace octavo::eval {
namespace {

void check_ids(const std::string& op, const EvalModel& model, const TokenizedText& text) {
  const auto beyond = std::find_if(text.ids.begin(), text.ids.end(), [&](std::int32_t id) {
    return id < 0 || id >= model.shape().vocabulary;
  });
  if (beyond == text.ids.end()) return;
  fail(
      ErrorCode::invalid_argument, op, "token ", beyond - text.ids.begin(), " of '",
      shown(text.name, 200), "' has the id ", *beyond, ", and the embedding of '",
      shown(model.name(), 200), "' has ", model.shape().vocabulary,
      " rows; expected ids below that; the tokenizer is not this model's, or the text needs tokens "
      "that were added without a row");
}

std::vector<std::int32_t> ids_of(const std::string& op, std::span<const EvalModel* const> models,
                                 const EvalText& text) {
  if (text.ids) return *text.ids;
  const EvalModel* first = nullptr;
  std::vector<std::int32_t> ids;
  for (const EvalModel* model : models) {
    if (!model->has_tokenizer()) continue;
    std::vector<std::int32_t> these = model->tokenize(text.content);
    if (first == nullptr) {
      first = model;
      ids = std::move(these);
      continue;
    }
    check(these == ids, ErrorCode::invalid_argument, op, "'", shown(first->name(), 200), "' and '",
          shown(model->name(), 200), "' cut '", shown(text.name, 200),
          "' into different tokens; expected models with one tokenizer; evaluate them one by one");
  }
  check(first != nullptr, ErrorCode::unsupported, op, "'", shown(models.front()->name(), 200),
        "' has no tokenizer that octavo reads (tokenizer.json); give the ids of the tokens instead "
        "of a text (--ids)");
  return ids;
}

}  // namespace

std::vector<TokenizedText> tokenize_texts(const std::string& op,
                                          std::span<const EvalModel* const> models,
                                          std::span<const EvalText> texts, std::int64_t most) {
  check(!texts.empty(), ErrorCode::invalid_argument, op, "got no text; expected one at least");
  check(most == 0 || most >= 2, ErrorCode::invalid_argument, op, "got tokens of ", most,
        "; expected two at least, or 0 for all");
  std::vector<TokenizedText> out;
  for (const EvalText& text : texts) {
    TokenizedText one{.name = text.name, .ids = ids_of(op, models, text)};
    if (most > 0 && static_cast<std::int64_t>(one.ids.size()) > most)
      one.ids.resize(static_cast<std::size_t>(most));
    check(one.ids.size() >= 2, ErrorCode::invalid_argument, op, "'", shown(text.name, 200),
          "' has ", one.ids.size(),
          " tokens; expected two at least: the first of a window is not "
          "predicted");
    for (const EvalModel* model : models) check_ids(op, *model, one);
    out.push_back(std::move(one));
  }
  return out;
}

TokenWindows make_windows(const std::string& op, std::span<const EvalModel* const> models,
                          std::vector<TokenizedText> texts, std::int64_t window) {
  std::int64_t longest = 0;  // what all models can take; 0: anything
  for (const EvalModel* model : models) {
    const std::int64_t positions = model->shape().max_positions;
    if (positions > 0 && (longest == 0 || positions < longest)) longest = positions;
  }
  if (window == 0) window = longest == 0 ? kDefaultWindow : std::min(kDefaultWindow, longest);
  check(window >= 2 && (longest == 0 || window <= longest), ErrorCode::invalid_argument, op,
        "got a window of ", window, " tokens; expected 2 to ",
        longest == 0 ? std::string("any number") : text(longest, ", the model's positions"));
  TokenWindows out{.window = window};
  const auto add_group = [&](std::size_t text, std::int64_t from, std::int64_t windows,
                             std::int64_t tokens) {
    out.groups.push_back({.text = text, .first = out.rows(), .windows = windows, .tokens = tokens});
    const std::vector<std::int32_t>& ids = texts[text].ids;
    for (std::int64_t i = 0; i < windows * tokens; ++i) {
      const auto at = static_cast<std::size_t>(from + i);
      out.ids.push_back(ids[at]);
      out.targets.push_back((i + 1) % tokens == 0 ? kNoTarget : ids[at + 1]);
    }
  };
  const std::int64_t together = std::max<std::int64_t>(1, kGroupTokens / window);
  for (std::size_t text = 0; text < texts.size(); ++text) {
    const auto tokens = static_cast<std::int64_t>(texts[text].ids.size());
    const std::int64_t whole = tokens / window;
    for (std::int64_t at = 0; at < whole; at += together)
      add_group(text, at * window, std::min(together, whole - at), window);
    if (tokens % window >= 2) add_group(text, whole * window, 1, tokens % window);
  }
  out.texts = std::move(texts);
  return out;
}

std::uint64_t tokens_hash(const TokenizedText& text) {
  return content_hash(std::as_bytes(std::span(text.ids)), 4096, 1);
}

}  // namespace octavo::eval
