// Fuzz target of a decoder's config.json: any text is refused with one clean error, or gives
// numbers that layers can be built by.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/model/model_config.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void check_rope(const octavo::RotaryEmbedding& rope, const octavo::ModelConfig& config) {
  require(rope.attention_factor > 0.0 && std::isfinite(rope.attention_factor), "attention factor");
  for (const std::int64_t length : {std::int64_t{1}, config.max_positions}) {
    const auto frequencies = rope.frequencies_for(length);
    require(static_cast<std::int64_t>(2 * frequencies.size()) <= config.head_size,
            "more pairs than a head has");
    require(std::ranges::all_of(frequencies, [](float one) { return std::isfinite(one); }),
            "a frequency is not finite");
  }
}

void check_config(const octavo::ModelConfig& config) {
  for (const std::int64_t size : {config.vocabulary, config.hidden, config.layers, config.heads,
                                  config.kv_heads, config.head_size, config.max_positions})
    require(size > 0, "a size is not above zero");
  require(config.heads % config.kv_heads == 0, "heads that share no keys");
  require(config.norm_epsilon > 0.0 && std::isfinite(config.attention_scale), "a number");
  const auto layers = static_cast<std::size_t>(config.layers);
  require(config.attention.size() == layers && config.sparse.size() == layers, "layers");
  for (const octavo::LayerAttention& layer : config.attention)
    require(layer.rope < config.ropes.size() && layer.window != 0, "attention of a layer");
  if (std::ranges::find(config.sparse, true) != config.sparse.end())
    require(config.experts.top_k > 0 && config.experts.top_k <= config.experts.count &&
                config.experts.intermediate > 0,
            "experts");
  for (const std::int32_t id : config.eos)
    require(id >= 0 && id < config.vocabulary, "a token beyond the vocabulary");
  for (const octavo::RotaryEmbedding& rope : config.ropes) check_rope(rope, config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check_config(
        octavo::parse_model_config(std::string(reinterpret_cast<const char*>(data), size)));
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(error.code() == octavo::ErrorCode::invalid_argument ||
                error.code() == octavo::ErrorCode::unsupported,
            "the error has another code");
    require(message.size() < 600, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
