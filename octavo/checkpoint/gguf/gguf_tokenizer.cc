// Writes tokenizer.json in pieces of text: a vocabulary of 250,000 tokens as a Json would be large.
#include "octavo/checkpoint/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/base/json/json_text_internal.h"
#include "octavo/checkpoint/gguf/gguf_merges_internal.h"
#include "octavo/checkpoint/gguf/gguf_names.h"

namespace octavo::gguf {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<PreTokenizer, 6> kPreTokenizers{
    {{.name = "llama-bpe", .expression = kLlama3, .whole_tokens = true, .begins = true},
     {.name = "qwen2", .expression = kQwen2, .nfc = true},
     {.name = "deepseek-r1-qwen", .expression = kQwen2, .nfc = true, .begins = true},
     {.name = "smollm", .expression = "", .single_digits = true},
     {.name = "starcoder", .expression = "", .single_digits = true},
     {.name = "gpt-2", .expression = ""}}};

// The longest token that merges are looked for in.
constexpr std::size_t kMaxTokenBytes = 512, kMaxTokens = 1U << 21;

std::string_view string_value(const Header& header, std::string_view key) {
  const Value* const value = find_value(header, key);
  return value == nullptr ? std::string_view() : value->string().value_or("");
}

std::vector<std::string_view> tokens_of(const Header& header) {
  const Value* const value = find_value(header, "tokenizer.ggml.tokens");
  return value == nullptr ? std::vector<std::string_view>() : value->strings();
}

bool is_sentence_piece(const Header& header) {
  return string_value(header, "tokenizer.ggml.model") == "llama";
}

const PreTokenizer* pre_tokenizer(const Header& header) {
  const std::string_view name = string_value(header, "tokenizer.ggml.pre");
  const auto at = std::find_if(kPreTokenizers.begin(), kPreTokenizers.end(),
                               [&](const PreTokenizer& one) { return one.name == name; });
  return at == kPreTokenizers.end() ? nullptr : &*at;
}

std::vector<TokenKind> kinds_of(const Header& header, std::size_t tokens) {
  std::vector<TokenKind> out(tokens, TokenKind::normal);
  const Value* const value = find_value(header, "tokenizer.ggml.token_type");
  if (value == nullptr) return out;
  const std::vector<double> numbers = value->numbers();
  for (std::size_t i = 0; i < std::min(tokens, numbers.size()); ++i)
    if (numbers[i] >= 1 && numbers[i] <= 6)
      out[i] = static_cast<TokenKind>(static_cast<int>(numbers[i]));
  return out;
}

// The token with this key's id; "" where there is none.
std::string_view special_token(const Header& header, std::string_view key,
                               const std::vector<std::string_view>& tokens) {
  const Value* const value = find_value(header, text("tokenizer.ggml.", key, "_token_id"));
  const std::int64_t id = value == nullptr ? -1 : value->integer().value_or(-1);
  if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) return {};
  return tokens[static_cast<std::size_t>(id)];
}

bool flag(const Header& header, std::string_view key, bool otherwise) {
  const Value* const value = find_value(header, text("tokenizer.ggml.", key));
  return value == nullptr ? otherwise : value->boolean().value_or(otherwise);
}

bool begins_with_bos(const Header& header) {
  const PreTokenizer* const pre = pre_tokenizer(header);
  return flag(header, "add_bos_token",
              is_sentence_piece(header) || (pre != nullptr && pre->begins));
}

std::string added_tokens(const std::vector<std::string_view>& tokens,
                         const std::vector<TokenKind>& kinds) {
  std::string out = "[";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool special = kinds[i] == TokenKind::control || kinds[i] == TokenKind::unknown;
    if (!special && kinds[i] != TokenKind::user) continue;
    if (out.size() > 1) out += ',';
    out += Json::object({{"id", static_cast<std::int64_t>(i)},
                         {"content", tokens[i]},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", false},
                         {"normalized", false},
                         {"special", special}})
               .dump(0);
  }
  return out + "]";
}

std::string vocabulary(const std::vector<std::string_view>& tokens) {
  std::string out = "{";
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_json_string(out, tokens[i]);
    out += text(":", i);
  }
  return out + "}";
}

Json byte_level(bool expression) {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", expression}});
}

Json sequence(std::string_view member, std::vector<Json> parts) {
  return Json::object({{"type", "Sequence"}, {member.data(), Json::array(std::move(parts))}});
}

Json cutting(const PreTokenizer& pre) {
  std::vector<Json> parts;
  if (pre.single_digits)
    parts.push_back(Json::object({{"type", "Digits"}, {"individual_digits", true}}));
  if (!pre.expression.empty())
    parts.push_back(Json::object({{"type", "Split"},
                                  {"pattern", Json::object({{"Regex", pre.expression}})},
                                  {"behavior", "Isolated"},
                                  {"invert", false}}));
  parts.push_back(byte_level(pre.expression.empty()));
  return parts.size() == 1 ? parts.front() : sequence("pretokenizers", std::move(parts));
}

Json replacing(std::string_view from, std::string_view to) {
  return Json::object(
      {{"type", "Replace"}, {"pattern", Json::object({{"String", from}})}, {"content", to}});
}

Json bos_template(std::string_view token, std::int64_t id) {
  const auto part = [](std::string_view kind, std::string_view name, int type) {
    return Json::object({{std::string(kind), Json::object({{"id", name}, {"type_id", type}})}});
  };
  const Json bos = part("SpecialToken", token, 0), a = part("Sequence", "A", 0);
  return Json::object(
      {{"type", "TemplateProcessing"},
       {"single", Json::array({bos, a})},
       {"pair", Json::array({bos, a, part("SpecialToken", token, 1), part("Sequence", "B", 1)})},
       {"special_tokens",
        Json::object({{std::string(token), Json::object({{"id", token},
                                                         {"ids", Json::array({id})},
                                                         {"tokens", Json::array({token})}})}})}});
}

}  // namespace

std::span<const PreTokenizer> pre_tokenizers() { return kPreTokenizers; }

std::string why_no_tokenizer(const Header& header) {
  const std::string_view model = string_value(header, "tokenizer.ggml.model");
  if (model.empty()) return "the file has none";
  if (model != "gpt2" && model != "llama")
    return text("a tokenizer of the kind '", shown(model), "' is not one that octavo writes");
  if (model == "gpt2" && pre_tokenizer(header) == nullptr)
    return text("octavo does not know how '", shown(string_value(header, "tokenizer.ggml.pre")),
                "' cuts text (tokenizer.ggml.pre)");
  const std::vector<std::string_view> tokens = tokens_of(header);
  if (tokens.empty() || tokens.size() > kMaxTokens)
    return text("it has ", tokens.size(), " tokens");
  const auto bad = [](std::string_view token) {
    return token.size() > kMaxTokenBytes || find_bad_utf8(token) != std::string_view::npos;
  };
  if (std::any_of(tokens.begin(), tokens.end(), bad))
    return "a token is no text, or longer than tokens are";
  std::vector<std::string_view> sorted = tokens;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return "two tokens are the same";
  if (model == "gpt2") {
    const Value* const merges = find_value(header, "tokenizer.ggml.merges");
    const auto pairs = merges == nullptr ? std::vector<std::string_view>() : merges->strings();
    if (pairs.empty()) return "it has no merges";
    const auto no_text = [](std::string_view pair) {
      return pair.size() > 2 * kMaxTokenBytes + 1 || find_bad_utf8(pair) != std::string_view::npos;
    };
    if (std::any_of(pairs.begin(), pairs.end(), no_text))
      return "a merge is no text, or longer than two tokens";
  }
  if (model == "llama")
    if (std::string why = why_no_merges(tokens, kinds_of(header, tokens.size())); !why.empty())
      return why;
  if (find_bad_utf8(string_value(header, "tokenizer.chat_template")) != std::string_view::npos)
    return "its chat template is no text";
  return "";
}

std::string tokenizer_json(const Header& header) {
  const std::vector<std::string_view> tokens = tokens_of(header);
  const std::vector<TokenKind> kinds = kinds_of(header, tokens.size());
  const bool pieces = is_sentence_piece(header);
  const std::string_view bos = special_token(header, "bos", tokens);
  Json normalizer, cut, post, decoder;
  Json model = Json::object({{"type", "BPE"}, {"dropout", Json()}});
  if (pieces) {
    const bool prefix = flag(header, "add_space_prefix", true);
    std::vector<Json> before,
        after{replacing(kSpace, " "), Json::object({{"type", "ByteFallback"}}),
              Json::object({{"type", "Fuse"}})};
    if (prefix) before.push_back(Json::object({{"type", "Prepend"}, {"prepend", kSpace}}));
    before.push_back(replacing(" ", kSpace));
    if (prefix)
      after.push_back(
          Json::object({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}));
    normalizer = sequence("normalizers", std::move(before));
    decoder = sequence("decoders", std::move(after));
    const std::string_view unknown = special_token(header, "unknown", tokens);
    model.set("unk_token", unknown.empty() ? Json() : Json(unknown));
  } else {
    const PreTokenizer& pre = *pre_tokenizer(header);
    if (pre.nfc) normalizer = Json::object({{"type", "NFC"}});
    cut = cutting(pre);
    decoder = byte_level(true);
    post = byte_level(true);
    post.set("trim_offsets", false);
    model.set("unk_token", Json());
    model.set("ignore_merges", pre.whole_tokens);
  }
  if (begins_with_bos(header) && !bos.empty()) {
    Json begin = bos_template(
        bos,
        static_cast<std::int64_t>(std::find(tokens.begin(), tokens.end(), bos) - tokens.begin()));
    post = post.is_null() ? std::move(begin)
                          : sequence("processors", {std::move(post), std::move(begin)});
  }
  model.set("fuse_unk", pieces);
  model.set("byte_fallback", pieces);
  std::string of_model = model.dump(0);
  of_model.pop_back();  // the closing brace
  const auto merges = [&] {
    const Value* const listed = find_value(header, "tokenizer.ggml.merges");
    if (!pieces) return merges_of_list(listed->strings(), tokens);
    const Value* const scores = find_value(header, "tokenizer.ggml.scores");
    return merges_by_score(scores == nullptr ? std::vector<double>() : scores->numbers(), tokens,
                           kinds);
  };
  return text(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)",
              added_tokens(tokens, kinds), R"(,"normalizer":)", normalizer.dump(0),
              R"(,"pre_tokenizer":)", cut.dump(0), R"(,"post_processor":)", post.dump(0),
              R"(,"decoder":)", decoder.dump(0), R"(,"model":)", of_model, R"(,"vocab":)",
              vocabulary(tokens), R"(,"merges":)", merges(), "}}\n");
}

std::string tokenizer_config_json(const Header& header) {
  const std::vector<std::string_view> tokens = tokens_of(header);
  Json out = Json::object({{"tokenizer_class", "PreTrainedTokenizerFast"},
                           {"clean_up_tokenization_spaces", false},
                           {"add_bos_token", begins_with_bos(header)}});
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNames{
      {{"bos", "bos_token"},
       {"eos", "eos_token"},
       {"unknown", "unk_token"},
       {"padding", "pad_token"}}};
  for (const auto& [key, name] : kNames)
    if (const std::string_view token = special_token(header, key, tokens); !token.empty())
      out.set(name, token);
  if (const auto length = model_integer(header, "context_length"))
    out.set("model_max_length", *length);
  if (const std::string_view words = string_value(header, "tokenizer.chat_template");
      !words.empty())
    out.set("chat_template", words);
  return out.dump() + "\n";
}

}  // namespace octavo::gguf
