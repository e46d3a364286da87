// Byte pair encoding: a word's characters, or its bytes, merged pair by pair into tokens.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "octavo/model/tokenizer/part_internal.h"
#include "octavo/model/tokenizer/vocabulary_internal.h"

namespace octavo::tokenizer {

struct Merge {
  std::uint32_t rank = 0;
  std::int32_t token = -1;  // what the pair becomes; negative: it does not merge
};

// Pairs of tokens in a table with open addressing: the lookup that encoding spends its time in.
class MergeTable {
 public:
  void reserve(std::size_t pairs);
  void set(std::int32_t left, std::int32_t right, Merge merge);
  [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return {};
    for (std::size_t at = place(left, right);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.left == left && slot.right == right) return slot.merge;
      if (slot.left < 0) return {};
    }
  }

 private:
  struct Slot {
    std::int32_t left = -1, right = -1;
    Merge merge{};
  };
  [[nodiscard]] std::size_t place(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                              static_cast<std::uint32_t>(right);
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15U) >> shift_) & mask_;
  }
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

// Memory of encoding, with tokens of words that were seen before. One at a time may use it.
struct BpeMemory {
  struct Symbol {
    std::int32_t token;
    std::int32_t before, after;  // negative: none
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t at;
    std::int32_t left, right;  // tokens when it was found
  };
  // A word's tokens in `ids`.
  struct Seen {
    std::uint32_t begin, count;
  };
  std::vector<Symbol> symbols{};
  std::vector<Candidate> heap{};
  std::vector<Merge> merges{};
  std::vector<std::int32_t> tokens{};
  std::deque<std::string> words{};
  std::unordered_map<std::string_view, Seen> seen{};
  std::vector<std::int32_t> ids{};
};

class Bpe {
 public:
  // `model` of tokenizer.json. With `bytes`, words are bytes and stand for byte characters.
  Bpe(const Part& model, bool bytes);

  // Appends a word's tokens. The word is not empty.
  void encode(std::string_view word, BpeMemory& memory, std::vector<std::int32_t>& out) const;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void read_merges(const Part& merges);
  void prepare_characters();
  void find_joined(const std::vector<std::int32_t>& merged);
  [[nodiscard]] std::int32_t character_token(std::uint32_t point) const;
  [[nodiscard]] bool splits_between(std::uint32_t left, std::uint32_t right) const;
  void encode_run(std::string_view run, BpeMemory& memory, std::vector<std::int32_t>& out) const;
  void first_tokens(std::string_view run, std::vector<std::int32_t>& tokens) const;
  void merge_few(BpeMemory& memory) const;
  void merge_many(BpeMemory& memory) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool bytes_;
  bool ignore_merges_ = false, byte_fallback_ = false, fuse_unknown_ = false;
  std::optional<std::int32_t> unknown_;
  std::vector<std::int32_t> low_;  // tokens of characters below its size
  std::unordered_map<std::uint32_t, std::int32_t> high_;
  std::array<std::int32_t, 256> byte_tokens_{};  // of bytes as byte characters
  std::array<std::int32_t, 256> fallback_{};     // <0x00> to <0xFF>
  // Neighbours inside of tokens that merging makes: between any other two characters no token
  // reaches, and a long word is cut there. Not for bytes.
  MergeTable joined_;
};

}  // namespace octavo::tokenizer
