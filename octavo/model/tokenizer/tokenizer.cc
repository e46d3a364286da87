#include "octavo/model/tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/base/json/json_text_internal.h"
#include "octavo/model/tokenizer/added_tokens_internal.h"
#include "octavo/model/tokenizer/bpe_internal.h"
#include "octavo/model/tokenizer/post_processor_internal.h"
#include "octavo/model/tokenizer/pre_tokenizer_internal.h"
#include "octavo/model/tokenizer/text_normalizer_internal.h"
#include "octavo/model/tokenizer/token_decoder_internal.h"

namespace octavo {
namespace {

using tokenizer::AddedToken;
using tokenizer::GrowthLimit;
using tokenizer::Part;

// What a call needs, kept for the next: words that were seen are found in it.
struct Memory {
  tokenizer::MatchMemory match{};
  tokenizer::BpeMemory bpe{};
};

// Symbols of a word: more are not kept, because a text of one word has as many as characters.
constexpr std::size_t kMostKept = 1U << 20;
// Bytes that an added token may grow by: a file has many of them.
constexpr std::size_t kMoreOfAToken = 4096;

// Words straight into the model.
class Encoder final : public tokenizer::WordSink {
 public:
  Encoder(const tokenizer::Bpe& bpe, Memory& memory, std::vector<std::int32_t>& ids)
      : bpe_(bpe), memory_(memory), ids_(ids) {}
  void take(std::string_view word) override { bpe_.encode(word, memory_.bpe, ids_); }

 private:
  const tokenizer::Bpe& bpe_;
  Memory& memory_;
  std::vector<std::int32_t>& ids_;
};

Json parse(std::string_view text, std::string_view file) {
  Json json = parse_json(text, file);
  check(json.is_object(), ErrorCode::invalid_argument, "tokenizer", "got a ", file,
        " that is no JSON object");
  return json;
}

// A token of tokenizer_config.json: a text, or an object with it.
std::string_view token_text(const Json& token) {
  return token.is_object() ? token["content"].string_or("") : token.string_or("");
}

}  // namespace

struct Tokenizer::State {
  explicit State(const Json& json)
      : normalizer(Part(json["normalizer"], "normalizer")),
        pre_tokenizer(Part(json["pre_tokenizer"], "pre_tokenizer")),
        bpe(Part(json["model"], "model"), pre_tokenizer.gives_bytes()),
        decoder(Part(json["decoder"], "decoder")),
        post_processor(Part(json["post_processor"], "post_processor")) {
    added = tokenizer::AddedTokens(Part(json["added_tokens"], "added_tokens"), bpe.vocabulary(),
                                   [&](std::string_view text) {
                                     tokenizer::MatchMemory memory;
                                     GrowthLimit limit(text.size(), kMoreOfAToken);
                                     bool keeps_begin = true;
                                     return normalizer.normalize(text, memory, limit, keeps_begin);
                                   });
    bos = post_processor.begin();
    eos = post_processor.end();
  }

  void apply_config(const Json& config);
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token) const {
    const auto id = added.id_of(token);
    return id ? id : bpe.vocabulary().id_of(token);
  }

  // One for each call at a time.
  [[nodiscard]] std::unique_ptr<Memory> borrow() const {
    const std::scoped_lock lock(mutex);
    if (idle.empty()) return std::make_unique<Memory>();
    std::unique_ptr<Memory> out = std::move(idle.back());
    idle.pop_back();
    return out;
  }
  void give_back(std::unique_ptr<Memory> memory) const {
    if (memory->bpe.symbols.capacity() > kMostKept) memory->bpe = {};
    const std::scoped_lock lock(mutex);
    idle.push_back(std::move(memory));
  }

  void encode_piece(std::string_view text, bool first, Memory& memory, GrowthLimit& limit,
                    Encoder& encoder, std::vector<std::int32_t>& ids) const;

  tokenizer::TextNormalizer normalizer;
  tokenizer::PreTokenizer pre_tokenizer;
  tokenizer::Bpe bpe;
  tokenizer::TokenDecoder decoder;
  tokenizer::PostProcessor post_processor;
  tokenizer::AddedTokens added;
  std::optional<std::int32_t> bos, eos;

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Memory>> idle;
};

// As transformers: where the config says whether BOS or EOS are added, the post-processor's
// template gives way to these two tokens.
void Tokenizer::State::apply_config(const Json& config) {
  const auto token = [&](std::string_view name) -> std::optional<std::int32_t> {
    const std::string_view content = token_text(config[name]);
    if (content.empty()) return std::nullopt;
    const auto id = id_of(content);
    check(id.has_value(), ErrorCode::invalid_argument, "tokenizer", "got a ", name, " '",
          shown(content), "' in tokenizer_config.json that tokenizer.json does not have");
    return id;
  };
  const auto named_bos = token("bos_token"), named_eos = token("eos_token");
  const Json &add_bos = config["add_bos_token"], &add_eos = config["add_eos_token"];
  if (!add_bos.is_null() || !add_eos.is_null())
    post_processor = tokenizer::PostProcessor(
        add_bos.boolean_or(false) ? named_bos : std::optional<std::int32_t>(),
        add_eos.boolean_or(false) ? named_eos : std::optional<std::int32_t>());
  if (named_bos) bos = named_bos;
  if (named_eos) eos = named_eos;
}

// A piece between tokens that were found in the text as it came.
void Tokenizer::State::encode_piece(std::string_view text, bool first, Memory& memory,
                                    GrowthLimit& limit, Encoder& encoder,
                                    std::vector<std::int32_t>& ids) const {
  std::string normalized;
  if (!normalizer.empty()) {
    normalized = normalizer.normalize(text, memory.match, limit, first);
    text = normalized;
  }
  const char* const begin = text.data();
  added.split(text, true, memory.match,
              [&](std::string_view part, std::optional<std::int32_t> token) {
                if (token) return ids.push_back(*token);
                pre_tokenizer.cut(part, first && part.data() == begin, memory.match, encoder);
              });
}

std::string Tokenizer::why_unavailable() {
  std::string missing(tokenizer::missing_for_expressions());
  const std::string_view other = tokenizer::missing_for_normal_forms();
  if (!missing.empty() && !other.empty()) missing += " and ";
  missing += other;
  if (missing.empty()) return {};
  return text("octavo was built without ", missing,
              ", which tokenizers need; install it and build octavo again");
}

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json,
                               std::string_view tokenizer_config_json) {
  const std::string why = why_unavailable();
  check(why.empty(), ErrorCode::unsupported, "tokenizer", "got a tokenizer.json, and ", why);
  const auto state = std::make_shared<State>(parse(tokenizer_json, "tokenizer.json"));
  if (!tokenizer_config_json.empty())
    state->apply_config(parse(tokenizer_config_json, "tokenizer_config.json"));
  return Tokenizer(state);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool specials) const {
  const std::size_t bad = find_bad_utf8(text);
  check(bad == std::string_view::npos, ErrorCode::invalid_argument, "tokenizer",
        "got a text that is not UTF-8 at byte ", bad, "; expected UTF-8");
  std::unique_ptr<Memory> memory = state_->borrow();
  std::vector<std::int32_t> ids;
  Encoder encoder(state_->bpe, *memory, ids);
  GrowthLimit limit(text.size());
  state_->added.split(
      text, false, memory->match, [&](std::string_view part, std::optional<std::int32_t> token) {
        if (token) return ids.push_back(*token);
        state_->encode_piece(part, part.data() == text.data(), *memory, limit, encoder, ids);
      });
  state_->give_back(std::move(memory));
  return state_->post_processor.process(std::move(ids), specials);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_specials) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    const AddedToken* const added = state_->added.find(id);
    const std::string* const token =
        added != nullptr ? &added->decoded : state_->bpe.vocabulary().token_of(id);
    if (token == nullptr) continue;
    if (skip_specials && state_->added.is_special_text(*token)) continue;
    tokens.push_back(*token);
  }
  std::unique_ptr<Memory> memory = state_->borrow();
  std::string out = state_->decoder.decode(std::move(tokens), memory->match);
  state_->give_back(std::move(memory));
  return out;
}

std::int64_t Tokenizer::size() const {
  return std::max(state_->bpe.vocabulary().end(), state_->added.end());
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  return state_->id_of(token);
}

std::string_view Tokenizer::token_of(std::int32_t id) const {
  if (const AddedToken* const added = state_->added.find(id)) return added->content;
  const std::string* const token = state_->bpe.vocabulary().token_of(id);
  return token == nullptr ? std::string_view() : *token;
}

bool Tokenizer::is_special(std::int32_t id) const {
  const AddedToken* const added = state_->added.find(id);
  return added != nullptr && added->special;
}

std::optional<std::int32_t> Tokenizer::bos() const { return state_->bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return state_->eos; }

}  // namespace octavo
