// Tokenizer: text to tokens and back, as tokenizer.json says: byte-level BPE (GPT-2, Llama 3, Qwen,
// SmolLM, gpt-oss) and BPE with byte fallback (Llama 2, Mistral, Gemma, Phi-3).
//   const Tokenizer tokenizer = Tokenizer::from_json(text);
//   const std::vector<std::int32_t> ids = tokenizer.encode("Hello");
// Equal to Hugging Face's `tokenizers` on any input, invalid UTF-8 apart, which that refuses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"

namespace octavo {

// Copies share what they are made of; threads may use one at the same time.
class OCTAVO_API Tokenizer {
 public:
  // Expressions and normal forms are PCRE2's and utf8proc's: "" where octavo was built with both,
  // else what was missing. from_json throws Error(unsupported) then.
  [[nodiscard]] static std::string why_unavailable();

  // The texts of tokenizer.json and, where there is one, tokenizer_config.json (which tokens begin
  // and end a text). Throws Error(unsupported) that names a model, normalizer or pre-tokenizer it
  // does not know, Error(invalid_argument) for what is malformed.
  [[nodiscard]] static Tokenizer from_json(std::string_view tokenizer_json,
                                           std::string_view tokenizer_config_json = {});

  // With `specials`, the tokens that the post-processor adds (BOS, EOS) are added. Invalid UTF-8
  // throws Error(invalid_argument) that names the byte; a regular expression of tokenizer.json that
  // takes too many steps on this text, Error(unsupported).
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, bool specials = true) const;
  // Ids that no token has are left out; bytes that are not UTF-8 become U+FFFD.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids,
                                   bool skip_specials = true) const;

  [[nodiscard]] std::int64_t size() const;  // ids are below it
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token) const;
  // The token as it stands in the vocabulary; empty for an id that none has.
  [[nodiscard]] std::string_view token_of(std::int32_t id) const;
  [[nodiscard]] bool is_special(std::int32_t id) const;
  // What tokenizer_config.json names, else what the post-processor adds.
  [[nodiscard]] std::optional<std::int32_t> bos() const;
  [[nodiscard]] std::optional<std::int32_t> eos() const;

  // Text as tokens come, one at a time: holds back bytes of an unfinished character. Specials give
  // no text.
  class OCTAVO_API Stream {
   public:
    explicit Stream(const Tokenizer& tokenizer);
    [[nodiscard]] std::string put(std::int32_t id);  // what this token adds
    [[nodiscard]] std::string finish();              // what was held back
   private:
    [[nodiscard]] std::string take(std::string text);
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::vector<std::int32_t> ids_;  // what the next text depends on
    std::size_t context_ = 0;        // of those, whose text is given already
    std::string given_;
  };

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace octavo
