// Tokens that every text gets: BOS before it, EOS after it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "octavo/model/tokenizer/part_internal.h"

namespace octavo::tokenizer {

class PostProcessor {
 public:
  PostProcessor() = default;
  explicit PostProcessor(const Part& part);  // `post_processor` of tokenizer.json
  // These alone.
  PostProcessor(std::optional<std::int32_t> begin, std::optional<std::int32_t> end);

  [[nodiscard]] std::vector<std::int32_t> process(std::vector<std::int32_t> ids,
                                                  bool specials) const;
  // The token directly before, or after, the text; none where there are several.
  [[nodiscard]] std::optional<std::int32_t> begin() const;
  [[nodiscard]] std::optional<std::int32_t> end() const;

 private:
  // The text (empty) or special tokens.
  using Item = std::vector<std::int32_t>;
  using Template = std::vector<Item>;

  void add(const Part& part);
  void add_template(const Part& part);
  std::vector<Template> templates_;
};

}  // namespace octavo::tokenizer
