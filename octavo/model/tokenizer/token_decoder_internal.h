// Tokens back to text: a chain of steps over the list of tokens.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "octavo/model/tokenizer/split_internal.h"

namespace octavo::tokenizer {

class TokenDecoder {
 public:
  explicit TokenDecoder(const Part& part);  // `decoder` of tokenizer.json

  // The text of tokens; without a decoder they have spaces between them. Bytes that are not UTF-8
  // become U+FFFD. Throws Error(unsupported) where the text grows beyond GrowthLimit.
  [[nodiscard]] std::string decode(std::vector<std::string> tokens, MatchMemory& memory) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Replace {
    Pattern pattern;
    std::string text;
  };
  struct Strip {
    std::string character;
    std::size_t begin, end;  // at most so many there
  };
  struct Metaspace {
    std::string replacement;
    bool drops_first;  // of the first token
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace>;
  using Tokens = std::vector<std::string>;

  void add(const Part& part);
  static Tokens apply(const ByteLevel& step, Tokens tokens, MatchMemory& memory,
                      const GrowthLimit& limit);
  static Tokens apply(const ByteFallback& step, Tokens tokens, MatchMemory& memory,
                      const GrowthLimit& limit);
  static Tokens apply(const Fuse& step, Tokens tokens, MatchMemory& memory,
                      const GrowthLimit& limit);
  static Tokens apply(const Replace& step, Tokens tokens, MatchMemory& memory,
                      const GrowthLimit& limit);
  static Tokens apply(const Strip& step, Tokens tokens, MatchMemory& memory,
                      const GrowthLimit& limit);
  static Tokens apply(const Metaspace& step, Tokens tokens, MatchMemory& memory,
                      const GrowthLimit& limit);

  std::vector<Step> steps_;
};

}  // namespace octavo::tokenizer
