// A text cut into words, which are merged apart from each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "octavo/model/tokenizer/split_internal.h"

namespace octavo::tokenizer {

// Takes the words of a text in their order.
class WordSink {
 public:
  WordSink() = default;
  WordSink(const WordSink&) = delete;
  WordSink& operator=(const WordSink&) = delete;
  virtual void take(std::string_view word) = 0;

 protected:
  ~WordSink() = default;
};

enum class PrependScheme : std::uint8_t { always, first, never };
[[nodiscard]] PrependScheme parse_prepend_scheme(const Part& metaspace);
// The character that Metaspace writes for a space.
[[nodiscard]] std::string metaspace_replacement(const Part& metaspace);

class PreTokenizer {
 public:
  explicit PreTokenizer(const Part& part);  // `pre_tokenizer` of tokenizer.json

  // Whether words are bytes that stand for byte characters: the last step is ByteLevel, and the
  // model writes bytes so itself.
  [[nodiscard]] bool gives_bytes() const { return gives_bytes_; }
  // `first`: the text begins where all of it begins.
  void cut(std::string_view text, bool first, MatchMemory& memory, WordSink& sink) const;

 private:
  struct PrefixSpace {};  // where there is none
  struct WriteBytes {};   // as byte characters
  struct Split {
    Pattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct ByKind {  // characters of a kind
    bool (*is)(std::uint32_t point);
    SplitBehavior behavior;
  };
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
    bool splits;
  };
  using Step = std::variant<PrefixSpace, WriteBytes, Split, ByKind, Metaspace>;
  struct Text {
    std::string_view text;
    bool first;
    std::size_t step;  // the next
  };

  void add(const Part& part);
  void run(const Text& text, MatchMemory& memory, WordSink& sink) const;
  void run_cuts(const Text& text, std::vector<Cut> cuts, SplitBehavior behavior,
                MatchMemory& memory, WordSink& sink) const;
  void apply(const PrefixSpace& step, const Text& text, MatchMemory& memory, WordSink& sink) const;
  void apply(const WriteBytes& step, const Text& text, MatchMemory& memory, WordSink& sink) const;
  void apply(const Split& step, const Text& text, MatchMemory& memory, WordSink& sink) const;
  void apply(const ByKind& step, const Text& text, MatchMemory& memory, WordSink& sink) const;
  void apply(const Metaspace& step, const Text& text, MatchMemory& memory, WordSink& sink) const;

  std::vector<Step> steps_;
  bool gives_bytes_ = false;
};

}  // namespace octavo::tokenizer
