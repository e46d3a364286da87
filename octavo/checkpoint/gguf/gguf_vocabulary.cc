// The vocabulary of a tokenizer.json as keys of a GGUF file.
#include <algorithm>
#include <map>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf/gguf_keys.h"
#include "octavo/checkpoint/gguf/gguf_tokenizer.h"
#include "octavo/checkpoint/gguf/gguf_writer.h"

namespace octavo::gguf {
namespace {

// A part of a tokenizer.json, or the parts of its Sequence.
std::vector<const Json*> parts_of(const Json& whole, std::string_view member) {
  std::vector<const Json*> out;
  if (whole["type"].string_or("") != "Sequence") {
    if (whole.is_object()) out.push_back(&whole);
    return out;
  }
  for (const Json& part : whole[member].elements()) out.push_back(&part);
  return out;
}

const Json* find_part(const std::vector<const Json*>& parts, std::string_view type) {
  const auto at = std::find_if(parts.begin(), parts.end(), [&](const Json* part) {
    return (*part)["type"].string_or("") == type;
  });
  return at == parts.end() ? nullptr : *at;
}

// llama.cpp's name for how a byte-level tokenizer cuts text.
std::string_view pre_tokenizer_name(const Json& tokenizer) {
  const auto parts = parts_of(tokenizer["pre_tokenizer"], "pretokenizers");
  const Json *const bytes = find_part(parts, "ByteLevel"), *const split = find_part(parts, "Split"),
                    *const digits = find_part(parts, "Digits");
  const bool nfc = find_part(parts_of(tokenizer["normalizer"], "normalizers"), "NFC") != nullptr;
  const std::string_view expression =
      split == nullptr ? "" : (*split)["pattern"]["Regex"].string_or("?");
  const std::size_t known = (bytes != nullptr) + (split != nullptr) + (digits != nullptr);
  const bool plain = bytes != nullptr && known == parts.size() &&
                     !(*bytes)["add_prefix_space"].boolean_or(true) &&
                     (*bytes)["use_regex"].boolean_or(true) == (split == nullptr) &&
                     (digits == nullptr || (*digits)["individual_digits"].boolean_or(false));
  for (const PreTokenizer& one : pre_tokenizers())
    if (plain && one.expression == expression && one.single_digits == (digits != nullptr) &&
        one.nfc == nfc)
      return one.name;
  fail(ErrorCode::unsupported, kOp,
       "tokenizer.json cuts text in a way that llama.cpp has no name for that octavo knows: ",
       shown(tokenizer["pre_tokenizer"].dump(0), 160),
       "; take tokenizer.json away for a GGUF file without a tokenizer");
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;

  void put(std::int64_t id, std::string_view token, TokenKind kind) {
    constexpr std::int64_t kMax = 1 << 22;
    check(id >= 0 && id < kMax, ErrorCode::invalid_argument, kOp, "tokenizer.json has a token '",
          shown(token), "' with the id ", id);
    const auto at = static_cast<std::size_t>(id);
    if (at >= tokens.size()) {
      tokens.resize(at + 1);
      kinds.resize(at + 1, static_cast<std::int32_t>(TokenKind::unused));
    }
    tokens[at] = token;
    kinds[at] = static_cast<std::int32_t>(kind);
  }

  // Rows of the embedding that have no token get one that no text has.
  void fill(std::size_t count) {
    check(tokens.size() <= count, ErrorCode::invalid_argument, kOp, "tokenizer.json has ids up to ",
          tokens.size() - 1, ", and config.json a vocab_size of ", count);
    tokens.resize(count);
    kinds.resize(count, static_cast<std::int32_t>(TokenKind::unused));
    for (std::size_t i = 0; i < count; ++i)
      if (kinds[i] == static_cast<std::int32_t>(TokenKind::unused))
        tokens[i] = text("[PAD", i, "]");
  }

  [[nodiscard]] std::int64_t find(std::string_view token) const {
    const auto at = std::find(tokens.begin(), tokens.end(), token);
    return token.empty() || at == tokens.end() ? -1 : at - tokens.begin();
  }
};

bool is_byte(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

Vocabulary vocabulary_of(const Json& tokenizer, bool pieces) {
  const Json& model = tokenizer["model"];
  Vocabulary out;
  for (const auto& [token, id] : model["vocab"].members()) {
    const bool unknown = pieces && token == model["unk_token"].string_or("");
    out.put(id.integer_or(-1), token,
            unknown                    ? TokenKind::unknown
            : pieces && is_byte(token) ? TokenKind::byte
                                       : TokenKind::normal);
  }
  for (const Json& added : tokenizer["added_tokens"].elements()) {
    const std::string_view token = added["content"].string_or("");
    if (pieces && token == model["unk_token"].string_or("")) continue;
    out.put(added["id"].integer_or(-1), token,
            added["special"].boolean_or(false) ? TokenKind::control : TokenKind::user);
  }
  check(!out.tokens.empty(), ErrorCode::invalid_argument, kOp, "tokenizer.json has no vocabulary");
  return out;
}

// The two tokens of a merge, "a b" or, in newer files, a pair; their texts may have spaces there.
std::pair<std::string_view, std::string_view> merge_pair(const Json& merge) {
  if (!merge.is_string()) {
    const auto& parts = merge.elements();
    if (parts.size() != 2) return {};
    return {parts[0].string_or(""), parts[1].string_or("")};
  }
  const std::string_view words = merge.string_or("");
  const std::size_t space = words.find(' ');
  if (space == std::string_view::npos) return {words, {}};
  return {words.substr(0, space), words.substr(space + 1)};
}

// "a b", as GGUF files have merges. Who reads one cuts it at the first space behind a character.
std::string merge_text(const Json& merge) {
  const auto [left, right] = merge_pair(merge);
  std::string out = text(left, " ", right);
  check(out.find(' ', 1) == left.size(), ErrorCode::unsupported, kOp,
        "tokenizer.json has a merge of '", shown(left), "' and '", shown(right),
        "'; a GGUF file cannot hold a merge whose first token is empty or has a space in it; take "
        "tokenizer.json away for a file without a tokenizer");
  return out;
}

// A piece's score is the rank of the first merge that makes it, so that SentencePiece joins in the
// order of the merges.
std::vector<float> scores_of(const Json& merges, const Vocabulary& vocabulary) {
  std::map<std::string, std::size_t> rank;
  std::size_t next = 0;
  for (const Json& merge : merges.elements()) {
    const auto [left, right] = merge_pair(merge);
    rank.emplace(text(left, right), ++next);
  }
  std::vector<float> out;
  for (const std::string& token : vocabulary.tokens) {
    const auto found = rank.find(token);
    out.push_back(found == rank.end() ? 0.0F : -static_cast<float>(found->second));
  }
  return out;
}

// Does the tokenizer put a space before a text?
bool has_space_prefix(const Json& tokenizer) {
  if (find_part(parts_of(tokenizer["normalizer"], "normalizers"), "Prepend") != nullptr)
    return true;
  const Json* const space =
      find_part(parts_of(tokenizer["pre_tokenizer"], "pretokenizers"), "Metaspace");
  return space != nullptr && (*space)["prepend_scheme"].string_or("always") != "never";
}

bool begins_with_token(const Json& tokenizer) {
  const Json* const part =
      find_part(parts_of(tokenizer["post_processor"], "processors"), "TemplateProcessing");
  return part != nullptr && !(*part)["single"].elements().empty() &&
         (*part)["single"].elements().front().has("SpecialToken");
}

// tokenizer_config.json names a token, or has an object for it.
std::string_view named_token(const Json& words) {
  return words.is_object() ? words["content"].string_or("") : words.string_or("");
}

}  // namespace

void add_vocabulary(const Json& tokenizer, const Json& tokenizer_config, const Json& config,
                    Metadata& metadata) {
  const Json& model = tokenizer["model"];
  check(model["type"].string_or("") == "BPE", ErrorCode::unsupported, kOp,
        "tokenizer.json has a model '", shown(model["type"].string_or("")),
        "'; expected BPE; take it away for a GGUF file without a tokenizer");
  const bool pieces = model["byte_fallback"].boolean_or(false);
  Vocabulary vocabulary = vocabulary_of(tokenizer, pieces);
  vocabulary.fill(static_cast<std::size_t>(config["vocab_size"].integer_or(0)));
  const auto set = [&](std::string_view key, Value value) {
    metadata[text("tokenizer.ggml.", key)] = std::move(value);
  };
  if (pieces) {
    set("model", string_value("llama"));
    set("pre", string_value("default"));
    set("scores", f32_array(scores_of(model["merges"], vocabulary)));
    set("add_space_prefix", boolean_value(has_space_prefix(tokenizer)));
  } else {
    set("model", string_value("gpt2"));
    set("pre", string_value(pre_tokenizer_name(tokenizer)));
    std::vector<std::string> merges;
    for (const Json& merge : model["merges"].elements()) merges.push_back(merge_text(merge));
    set("merges", string_array(merges));
  }
  const Json& says_bos = tokenizer_config["add_bos_token"];
  set("add_bos_token", boolean_value(says_bos.boolean_or(begins_with_token(tokenizer))));
  const auto set_token = [&](std::string_view key, std::string_view name) {
    std::int64_t id = vocabulary.find(named_token(tokenizer_config[text(name, "_token")]));
    const Json& said = config[text(name, "_token_id")];
    if (id < 0)
      id = said.is_array() && !said.elements().empty() ? said.elements().front().integer_or(-1)
                                                       : said.integer_or(-1);
    if (id >= 0) set(text(key, "_token_id"), count_value(id));
  };
  set_token("bos", "bos");
  set_token("eos", "eos");
  set_token("unknown", "unk");
  set_token("padding", "pad");
  set("tokens", string_array(vocabulary.tokens));
  set("token_type", i32_array(vocabulary.kinds));
  if (const std::string_view words = tokenizer_config["chat_template"].string_or("");
      !words.empty())
    metadata["tokenizer.chat_template"] = string_value(words);
}

}  // namespace octavo::gguf
