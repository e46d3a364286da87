// What is done to a text before it is cut: normal forms, replaced and prepended text.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "octavo/model/tokenizer/normal_form_internal.h"
#include "octavo/model/tokenizer/split_internal.h"

namespace octavo::tokenizer {

class TextNormalizer {
 public:
  TextNormalizer() = default;
  explicit TextNormalizer(const Part& part);  // `normalizer` of tokenizer.json

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // `keeps_begin` becomes false where the first character of the text is not the origin of the
  // first one of the result. Throws Error(unsupported) where the text grows beyond the limit.
  [[nodiscard]] std::string normalize(std::string_view text, MatchMemory& memory,
                                      GrowthLimit& limit, bool& keeps_begin) const;

 private:
  struct Lowercase {};
  struct Strip {
    bool left, right;
  };
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string text;
  };
  using Step = std::variant<NormalForm, Lowercase, Strip, Prepend, Replace>;

  void add(const Part& part);
  std::vector<Step> steps_;
};

}  // namespace octavo::tokenizer
