#include "octavo/model/tokenizer/bpe_internal.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "octavo/base/json/json_text_internal.h"
#include "octavo/model/tokenizer/byte_characters_internal.h"
#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::size_t kLowCharacters = 0x10000;
// Up to this many tokens, looking at all pairs for the next merge is faster than a heap.
constexpr std::size_t kFew = 32;
constexpr std::size_t kCutFrom = 16;                           // bytes of a word
constexpr std::size_t kSeenBytes = 64, kSeenWords = 1U << 16;  // of words that are remembered

constexpr Merge kJoined{0, 0};

}  // namespace

void MergeTable::reserve(std::size_t pairs) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(2 * pairs, 16));
  slots_.assign(size, {});
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  std::size_t at = place(left, right);
  while (slots_[at].left >= 0 && (slots_[at].left != left || slots_[at].right != right))
    at = (at + 1) & mask_;
  slots_[at] = {left, right, merge};
}

Bpe::Bpe(const Part& model, bool bytes) : bytes_(bytes) {
  if (const Part type = model["type"]; !type.absent() && type.string() != "BPE")
    model.unknown("a model of the kind", "BPE");
  if (const Part dropout = model["dropout"]; !dropout.absent())
    check(dropout.json().number_or(-1) == 0, ErrorCode::unsupported, "tokenizer",
          "got a model with dropout, which makes tokens random; expected none");
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Part affix = model[name]; !affix.absent())
      check(affix.string().empty(), ErrorCode::unsupported, "tokenizer", "got a model with ", name,
            " '", shown(affix.string()), "'; expected none");
  const Part vocab = model["vocab"];
  if (!vocab.json().is_object()) vocab.wrong("an object of tokens and their ids");
  for (const auto& [token, id] : vocab.json().members()) {
    const std::int64_t number = id.is_number() ? id.integer_or(-1) : -1;
    check(number >= 0 && number <= kMaxId, ErrorCode::invalid_argument, "tokenizer",
          "got a token '", shown(token), "' without an id from 0 to ", kMaxId);
    check(vocabulary_.add(token, static_cast<std::int32_t>(number)), ErrorCode::invalid_argument,
          "tokenizer", "got the id ", number, " for two tokens, one of them '", shown(token),
          "'; expected one for each");
  }
  ignore_merges_ = model["ignore_merges"].boolean_or(false);
  byte_fallback_ = model["byte_fallback"].boolean_or(false);
  fuse_unknown_ = model["fuse_unk"].boolean_or(false);
  if (const Part unknown = model["unk_token"]; !unknown.absent()) {
    unknown_ = vocabulary_.id_of(unknown.string());
    check(unknown_.has_value(), ErrorCode::invalid_argument, "tokenizer", "got the unk_token '",
          shown(unknown.string()), "', which is not in the vocabulary");
  }
  prepare_characters();
  read_merges(model["merges"]);
}

void Bpe::prepare_characters() {
  low_.assign(kLowCharacters, -1);
  for (const std::string& token : vocabulary_.tokens()) {
    if (token.empty() || token.size() != character_bytes(token[0])) continue;
    std::size_t at = 0;
    const std::uint32_t point = next_point(token, at);
    const std::int32_t id = *vocabulary_.id_of(token);
    if (point < kLowCharacters) {
      low_[point] = id;
    } else {
      high_.emplace(point, id);
    }
  }
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = character_token(byte_characters()[byte]);
    const std::string name{'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    fallback_[byte] = vocabulary_.id_of(name).value_or(-1);
  }
}

void Bpe::read_merges(const Part& merges) {
  const std::vector<Json>& all = merges.elements();
  merges_.reserve(all.size());
  std::vector<std::int32_t> merged;
  std::uint32_t rank = 0;
  const auto token = [&](std::size_t i, std::string_view name) {
    const auto id = vocabulary_.id_of(name);
    check(id.has_value(), ErrorCode::invalid_argument, "tokenizer", "got merge ", i, " with '",
          shown(name), "', which is not in the vocabulary");
    return *id;
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string_view left, right;
    bool good = false;
    if (all[i].is_array()) {
      const std::vector<Json>& pair = all[i].elements();
      good = pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
      if (good) left = pair[0].string_or(""), right = pair[1].string_or("");
    } else if (all[i].is_string()) {
      const std::string_view line = all[i].string_or("");
      if (line.starts_with("#version")) continue;
      const std::size_t space = line.find(' ');
      good = space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos;
      if (good) left = line.substr(0, space), right = line.substr(space + 1);
    }
    check(good, ErrorCode::invalid_argument, "tokenizer", "got merge ", i,
          " that is not two tokens, as \"a b\" or [\"a\", \"b\"]");
    const std::int32_t whole = token(i, std::string(left) + std::string(right));
    merges_.set(token(i, left), token(i, right), {rank++, whole});
    merged.push_back(whole);
  }
  if (!bytes_) find_joined(merged);
}

void Bpe::find_joined(const std::vector<std::int32_t>& merged) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const std::int32_t id : merged) {
    const std::string& token = *vocabulary_.token_of(id);
    if (token.empty()) continue;
    std::size_t at = 0;
    for (std::uint32_t before = next_point(token, at); at < token.size();) {
      const std::uint32_t point = next_point(token, at);
      pairs.emplace_back(before, point);
      before = point;
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  joined_.reserve(pairs.size());
  for (const auto& [left, right] : pairs)
    joined_.set(static_cast<std::int32_t>(left), static_cast<std::int32_t>(right), kJoined);
}

std::int32_t Bpe::character_token(std::uint32_t point) const {
  if (point < kLowCharacters) return low_[point];
  const auto found = high_.find(point);
  return found == high_.end() ? -1 : found->second;
}

bool Bpe::splits_between(std::uint32_t left, std::uint32_t right) const {
  // Tokens of characters that have none of their own (bytes, unknown) may merge, and fuse.
  return character_token(left) >= 0 && character_token(right) >= 0 &&
         joined_.find(static_cast<std::int32_t>(left), static_cast<std::int32_t>(right)).token < 0;
}

void Bpe::encode(std::string_view word, BpeMemory& memory, std::vector<std::int32_t>& out) const {
  if (ignore_merges_ && word.size() <= vocabulary_.longest()) {
    const auto whole =
        bytes_ ? vocabulary_.id_of(to_byte_characters(word)) : vocabulary_.id_of(word);
    if (whole) return out.push_back(*whole);
  }
  if (bytes_ || word.size() < kCutFrom) return encode_run(word, memory, out);
  std::size_t begin = 0, at = 0;
  for (std::uint32_t before = next_point(word, at); at < word.size();) {
    const std::size_t here = at;
    const std::uint32_t point = next_point(word, at);
    if (splits_between(before, point)) {
      encode_run(word.substr(begin, here - begin), memory, out);
      begin = here;
    }
    before = point;
  }
  encode_run(word.substr(begin), memory, out);
}

void Bpe::encode_run(std::string_view run, BpeMemory& memory,
                     std::vector<std::int32_t>& out) const {
  const bool remembered = run.size() <= kSeenBytes;
  if (remembered) {
    if (const auto at = memory.seen.find(run); at != memory.seen.end()) {
      const auto ids = memory.ids.begin() + at->second.begin;
      out.insert(out.end(), ids, ids + at->second.count);
      return;
    }
  }
  std::vector<std::int32_t>& tokens = memory.tokens;
  tokens.clear();
  first_tokens(run, tokens);
  if (tokens.size() <= kFew) {
    merge_few(memory);
  } else {
    merge_many(memory);
  }
  out.insert(out.end(), tokens.begin(), tokens.end());
  if (!remembered) return;
  if (memory.seen.size() >= kSeenWords) {
    memory.seen.clear();
    memory.words.clear();
    memory.ids.clear();
  }
  memory.seen.emplace(memory.words.emplace_back(run),
                      BpeMemory::Seen{static_cast<std::uint32_t>(memory.ids.size()),
                                      static_cast<std::uint32_t>(tokens.size())});
  memory.ids.insert(memory.ids.end(), tokens.begin(), tokens.end());
}

// A character that has no token becomes the tokens of its bytes where all of them have one, else
// the unknown token where there is one, else nothing. Tokens of bytes come before an unknown token
// that waits to be fused, as in the package.
void Bpe::first_tokens(std::string_view run, std::vector<std::int32_t>& tokens) const {
  bool waiting = false;
  const auto unknown_character = [&](std::string_view bytes) {
    if (byte_fallback_ && std::all_of(bytes.begin(), bytes.end(), [&](char c) {
          return fallback_[static_cast<unsigned char>(c)] >= 0;
        })) {
      for (const char c : bytes) tokens.push_back(fallback_[static_cast<unsigned char>(c)]);
      return;
    }
    if (!unknown_) return;
    if (waiting && !fuse_unknown_) tokens.push_back(*unknown_);
    waiting = true;
  };
  for (std::size_t at = 0; at < run.size();) {
    const std::size_t begin = at;
    std::int32_t token = -1;
    if (bytes_) {
      token = byte_tokens_[static_cast<unsigned char>(run[at++])];
    } else {
      token = character_token(next_point(run, at));
    }
    if (token < 0) {
      const std::string_view bytes = run.substr(begin, at - begin);
      if (bytes_) {
        unknown_character(to_byte_characters(bytes));
      } else {
        unknown_character(bytes);
      }
      continue;
    }
    if (waiting) tokens.push_back(*unknown_);
    waiting = false;
    tokens.push_back(token);
  }
  if (waiting) tokens.push_back(*unknown_);
}

// The merge that comes first in the list, at the leftmost place; until there is none.
void Bpe::merge_few(BpeMemory& memory) const {
  std::vector<std::int32_t>& tokens = memory.tokens;
  std::vector<Merge>& merges = memory.merges;
  if (tokens.size() < 2) return;
  merges.clear();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    merges.push_back(merges_.find(tokens[i], tokens[i + 1]));
  for (;;) {
    std::size_t best = merges.size();
    for (std::size_t i = 0; i < merges.size(); ++i)
      if (merges[i].token >= 0 && (best == merges.size() || merges[i].rank < merges[best].rank))
        best = i;
    if (best == merges.size()) return;
    const auto place = static_cast<std::ptrdiff_t>(best);
    tokens[best] = merges[best].token;
    tokens.erase(tokens.begin() + place + 1);
    merges.erase(merges.begin() + place);
    if (best > 0) merges[best - 1] = merges_.find(tokens[best - 1], tokens[best]);
    if (best < merges.size()) merges[best] = merges_.find(tokens[best], tokens[best + 1]);
  }
}

// The same with a heap of candidates and a linked list: a word may be a whole text.
void Bpe::merge_many(BpeMemory& memory) const {
  using Symbol = BpeMemory::Symbol;
  using Candidate = BpeMemory::Candidate;
  std::vector<std::int32_t>& tokens = memory.tokens;
  std::vector<Symbol>& symbols = memory.symbols;
  std::vector<Candidate>& heap = memory.heap;
  check(tokens.size() <= static_cast<std::size_t>(kMaxId), ErrorCode::unsupported, "tokenizer",
        "got a word of ", tokens.size(), " characters; expected at most ", kMaxId);
  const auto count = static_cast<std::int32_t>(tokens.size());
  symbols.clear();
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({tokens[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto symbol = [&](std::int32_t i) -> Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto candidate = [&](std::int32_t at) {
    const std::int32_t left = symbol(at).token, right = symbol(symbol(at).after).token;
    const Merge merge = merges_.find(left, right);
    if (merge.token >= 0) heap.push_back({merge.rank, at, left, right});
    return merge.token >= 0;
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbol(top.at);
    // Another merge may have taken one of the two.
    if (left.token != top.left || left.after < 0 || symbol(left.after).token != top.right) continue;
    Symbol& right = symbol(left.after);
    left.token = merges_.find(top.left, top.right).token;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) symbol(left.after).before = top.at;
    if (left.before >= 0 && candidate(left.before)) std::push_heap(heap.begin(), heap.end(), later);
    if (left.after >= 0 && candidate(top.at)) std::push_heap(heap.begin(), heap.end(), later);
  }
  tokens.clear();
  for (std::int32_t i = 0; i >= 0; i = symbol(i).after) tokens.push_back(symbol(i).token);
}

}  // namespace octavo::tokenizer
