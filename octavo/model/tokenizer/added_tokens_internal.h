// Added tokens: found in the text before it is cut into words, whole, some of them before it is
// normalized. Specials (BOS, EOS, <|im_start|>) are among them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "octavo/model/tokenizer/expression_internal.h"
#include "octavo/model/tokenizer/part_internal.h"
#include "octavo/model/tokenizer/vocabulary_internal.h"

namespace octavo::tokenizer {

struct AddedToken {
  std::string content{};
  std::string decoded{};  // what decoders see of it: normalized, where it is
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

// Strings of which the longest that a text has at a place is found.
class TokenTrie {
 public:
  void add(std::string_view content, std::int32_t id);
  // Its id and bytes at `at`; negative where there is none.
  [[nodiscard]] std::int32_t longest(std::string_view text, std::size_t at,
                                     std::size_t& bytes) const;
  [[nodiscard]] bool empty() const { return nodes_ == 1; }

 private:
  std::array<bool, 256> begins_{};
  std::unordered_map<std::uint64_t, std::uint32_t> next_;  // node and byte
  std::unordered_map<std::uint32_t, std::int32_t> ids_;
  std::uint32_t nodes_ = 1;
};

class AddedTokens {
 public:
  using Normalize = std::function<std::string(std::string_view)>;
  using Piece = std::function<void(std::string_view text, std::optional<std::int32_t> token)>;

  AddedTokens() = default;
  // `added_tokens` of tokenizer.json. A token that is in the vocabulary has its id there.
  AddedTokens(const Part& list, const Vocabulary& vocabulary, const Normalize& normalize);

  // Calls piece(text, token) for tokens and for what is between them, in order.
  void split(std::string_view text, bool normalized, MatchMemory& memory, const Piece& piece) const;
  [[nodiscard]] bool any(bool normalized) const { return !tries_[normalized ? 1 : 0].empty(); }
  [[nodiscard]] const AddedToken* find(std::int32_t id) const;
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view content) const;
  [[nodiscard]] bool is_special_text(std::string_view token) const {
    return specials_.contains(std::string(token));
  }
  [[nodiscard]] std::int64_t end() const { return end_; }  // ids are below it

 private:
  [[nodiscard]] bool is_single_word(std::string_view text, std::size_t begin, std::size_t end,
                                    MatchMemory& memory) const;

  std::unordered_map<std::int32_t, AddedToken> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> specials_;
  std::array<TokenTrie, 2> tries_;  // [normalized]
  std::optional<Expression> word_character_;
  std::int64_t end_ = 0;
};

}  // namespace octavo::tokenizer
