#include "octavo/checkpoint/gguf/gguf_merges_internal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/json/json_text_internal.h"

namespace octavo::gguf {
namespace {

// Of the work of finding merges (squares of tokens' bytes) and of their text. Vocabularies of
// 260,000 pieces need 30 million and 10 MB.
constexpr std::uint64_t kMaxMergeWork = std::uint64_t{1} << 30, kMaxMergeBytes = 1U << 28;

// A merge is a pair of texts: one text of both, with a space between, could not have a space in it.
void append_pair(std::string& list, std::string_view left, std::string_view right) {
  if (list.size() > 1) list += ',';
  list += '[';
  append_json_string(list, left);
  list += ',';
  append_json_string(list, right);
  list += ']';
}

// The two tokens of "a b" in a GGUF file, which has the same form for tokens with a space in them:
// cut where both sides and their union are tokens. Where none is that, at the first space that
// leaves a left side, as llama.cpp reads it.
std::pair<std::string_view, std::string_view> cut_merge(
    std::string_view merge, const std::unordered_set<std::string_view>& tokens) {
  const auto cut = [&](std::size_t at) {
    return std::pair(merge.substr(0, at), merge.substr(at + 1));
  };
  const std::size_t first = merge.find(' ', 1);
  if (first == std::string_view::npos) return {merge, {}};
  if (merge.find(' ', first + 1) == std::string_view::npos) return cut(first);
  for (std::size_t at = first; at != std::string_view::npos; at = merge.find(' ', at + 1)) {
    const auto [left, right] = cut(at);
    if (tokens.contains(left) && tokens.contains(right) && tokens.contains(text(left, right)))
      return {left, right};
  }
  return cut(first);
}

bool is_merged(TokenKind kind) { return kind == TokenKind::normal || kind == TokenKind::user; }

// Calls visit(left, right) for every pair of tokens that a token is made of, until it is false.
template <typename Visit>
void each_pair(std::string_view token, const std::unordered_map<std::string_view, std::size_t>& ids,
               const Visit& visit) {
  for (std::size_t at = 1; at < token.size(); ++at) {
    const bool inside = (static_cast<unsigned char>(token[at]) & 0xC0) == 0x80;
    if (inside || !ids.contains(token.substr(0, at)) || !ids.contains(token.substr(at))) continue;
    if (!visit(token.substr(0, at), token.substr(at))) return;
  }
}

std::unordered_map<std::string_view, std::size_t> merged_tokens(
    const std::vector<std::string_view>& tokens, const std::vector<TokenKind>& kinds) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (is_merged(kinds[i])) ids.emplace(tokens[i], i);
  return ids;
}

}  // namespace

std::string merges_of_list(const std::vector<std::string_view>& merges,
                           const std::vector<std::string_view>& tokens) {
  const std::unordered_set<std::string_view> known(tokens.begin(), tokens.end());
  std::string out = "[";
  for (const std::string_view merge : merges) {
    const auto [left, right] = cut_merge(merge, known);
    append_pair(out, left, right);
  }
  return out + "]";
}

std::string why_no_merges(const std::vector<std::string_view>& tokens,
                          const std::vector<TokenKind>& kinds) {
  std::uint64_t work = 0, bytes = 0;
  for (const std::string_view token : tokens)
    work += static_cast<std::uint64_t>(token.size()) * token.size();
  const auto ids = work <= kMaxMergeWork ? merged_tokens(tokens, kinds)
                                         : std::unordered_map<std::string_view, std::size_t>();
  for (const auto& [token, id] : ids)
    each_pair(token, ids, [&](std::string_view left, std::string_view right) {
      bytes += left.size() + right.size() + sizeof("[\"\",\"\"],") - 1;
      return bytes <= kMaxMergeBytes;
    });
  if (work <= kMaxMergeWork && bytes <= kMaxMergeBytes) return "";
  return text("its tokens are made of each other in too many ways: ",
              work > kMaxMergeWork
                  ? text("they have ", work, " squared bytes, expected at most ", kMaxMergeWork)
                  : text("their merges have more than ", kMaxMergeBytes, " bytes"));
}

std::string merges_by_score(const std::vector<double>& scores,
                            const std::vector<std::string_view>& tokens,
                            const std::vector<TokenKind>& kinds) {
  const auto ids = merged_tokens(tokens, kinds);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (is_merged(kinds[i])) order.push_back(i);
  const auto score = [&](std::size_t i) {
    if (i >= scores.size()) return -static_cast<double>(i);
    // NaN has no place in an order.
    return std::isnan(scores[i]) ? -std::numeric_limits<double>::infinity() : scores[i];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return score(a) > score(b); });
  std::string out = "[";
  for (const std::size_t i : order)
    each_pair(tokens[i], ids, [&](std::string_view left, std::string_view right) {
      append_pair(out, left, right);
      return true;
    });
  return out + "]";
}

}  // namespace octavo::gguf
