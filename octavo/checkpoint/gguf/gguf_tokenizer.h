// The tokenizer of a GGUF file's metadata as the files that Hugging Face's tokenizers load:
// byte-level BPE (model "gpt2", with merges) and SentencePiece BPE (model "llama", with scores).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "octavo/checkpoint/gguf/gguf_header.h"

namespace octavo::gguf {

// "" where both files below can be made.
[[nodiscard]] std::string why_no_tokenizer(const Header& header);
[[nodiscard]] std::string tokenizer_json(const Header& header);
[[nodiscard]] std::string tokenizer_config_json(const Header& header);

// How text is cut before byte-level BPE, by llama.cpp's name for it (tokenizer.ggml.pre).
struct PreTokenizer {
  std::string_view name;
  std::string_view expression;  // "": the one built into ByteLevel
  bool single_digits = false;   // every digit alone, before that
  bool nfc = false;             // text is normalized to NFC
  bool whole_tokens = false;    // what is in the vocabulary is not merged (ignore_merges)
  bool begins = false;          // a text begins with the BOS token, unless the metadata say not
};
[[nodiscard]] std::span<const PreTokenizer> pre_tokenizers();

// Kinds of tokens (tokenizer.ggml.token_type).
enum class TokenKind : std::uint8_t { normal = 1, unknown, control, user, unused, byte };

inline constexpr std::string_view kSpace = "\u2581";  // SentencePiece's

}  // namespace octavo::gguf
