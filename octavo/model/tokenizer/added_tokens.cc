#include "octavo/model/tokenizer/added_tokens_internal.h"

#include <algorithm>

#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::size_t kMaxTokenBytes = 4096;
// What Rust's regular expressions call \w.
constexpr std::string_view kWordCharacter = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])";

// Where the last character before `end` begins.
std::size_t character_before(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

std::uint64_t edge(std::uint32_t node, char c) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
}

}  // namespace

void TokenTrie::add(std::string_view content, std::int32_t id) {
  begins_[static_cast<unsigned char>(content[0])] = true;
  std::uint32_t node = 0;
  for (const char c : content) {
    const auto [at, is_new] = next_.emplace(edge(node, c), nodes_);
    if (is_new) ++nodes_;
    node = at->second;
  }
  ids_[node] = id;
}

std::int32_t TokenTrie::longest(std::string_view text, std::size_t at, std::size_t& bytes) const {
  std::int32_t found = -1;
  if (!begins_[static_cast<unsigned char>(text[at])]) return found;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto next = next_.find(edge(node, text[i]));
    if (next == next_.end()) break;
    node = next->second;
    if (const auto id = ids_.find(node); id != ids_.end()) {
      found = id->second;
      bytes = i + 1 - at;
    }
  }
  return found;
}

AddedTokens::AddedTokens(const Part& list, const Vocabulary& vocabulary,
                         const Normalize& normalize) {
  if (list.absent()) return;
  for (std::size_t i = 0; i < list.elements().size(); ++i) {
    const Part part = list.element(i);
    AddedToken token;
    token.content = part["content"].string();
    token.single_word = part["single_word"].boolean_or(false);
    token.lstrip = part["lstrip"].boolean_or(false);
    token.rstrip = part["rstrip"].boolean_or(false);
    token.special = part["special"].boolean_or(false);
    token.normalized = part["normalized"].boolean_or(!token.special);
    if (token.content.empty()) continue;
    check(token.content.size() <= kMaxTokenBytes, ErrorCode::unsupported, "tokenizer",
          "got an added token of ", token.content.size(), " bytes; expected at most ",
          kMaxTokenBytes);
    std::optional<std::int32_t> known = id_of(token.content);
    if (!known) known = vocabulary.id_of(token.content);
    const auto id = static_cast<std::int32_t>(part["id"].integer(kMaxId));
    const bool good =
        known ? *known == id : vocabulary.token_of(id) == nullptr && !tokens_.contains(id);
    check(
        good, ErrorCode::invalid_argument, "tokenizer", "got the added token '",
        shown(token.content), "' with id ", id, "; expected ",
        known ? text("the id ", *known, " that it has already") : "an id that no other token has");
    token.decoded = token.content;
    if (token.normalized) token.decoded = normalize(token.content);
    if (token.single_word && !word_character_)
      word_character_ = Expression::from_pcre2(kWordCharacter);
    if (token.special) specials_.insert(token.content);
    ids_[token.content] = id;
    end_ = std::max(end_, std::int64_t{id} + 1);
    tokens_.insert_or_assign(id, std::move(token));
  }
  for (const auto& [id, token] : tokens_) {
    const std::string& wanted = token.normalized ? token.decoded : token.content;
    if (!wanted.empty()) tries_[token.normalized ? 1 : 0].add(wanted, id);
  }
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto at = tokens_.find(id);
  return at == tokens_.end() ? nullptr : &at->second;
}

std::optional<std::int32_t> AddedTokens::id_of(std::string_view content) const {
  const auto at = ids_.find(std::string(content));
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

bool AddedTokens::is_single_word(std::string_view text, std::size_t begin, std::size_t end,
                                 MatchMemory& memory) const {
  const auto is_word = [&](std::size_t from, std::size_t to) {
    std::string storage;
    Match match;
    return word_character_->search(with_stand_ins(text.substr(from, to - from), storage), 0, memory,
                                   match);
  };
  if (begin > 0 && is_word(character_before(text, begin), begin)) return false;
  return end == text.size() || !is_word(end, end + character_bytes(text[end]));
}

void AddedTokens::split(std::string_view text, bool normalized, MatchMemory& memory,
                        const Piece& piece) const {
  const TokenTrie& trie = tries_[normalized ? 1 : 0];
  std::size_t done = 0;
  for (std::size_t at = trie.empty() ? text.size() : 0; at < text.size();) {
    std::size_t bytes = 0;
    const std::int32_t id = trie.longest(text, at, bytes);
    if (id < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_.at(id);
    std::size_t begin = at, end = at + bytes;
    at = end;
    if (token.single_word && !is_single_word(text, begin, end, memory)) continue;
    // White space that an earlier token took is not taken again.
    while (token.lstrip && begin > done) {
      std::size_t before = character_before(text, begin);
      const std::size_t space = before;
      if (!is_white_space(next_point(text, before))) break;
      begin = space;
    }
    if (token.lstrip) begin = std::min(std::max(begin, done), end);
    while (token.rstrip && end < text.size()) {
      std::size_t after = end;
      if (!is_white_space(next_point(text, after))) break;
      end = after;
    }
    if (done < begin) piece(text.substr(done, begin - done), std::nullopt);
    piece(text.substr(begin, end - begin), id);
    done = end;
  }
  if (done < text.size()) piece(text.substr(done), std::nullopt);
}

}  // namespace octavo::tokenizer
