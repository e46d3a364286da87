#include "octavo/model/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/base/philox.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "generate";

void check_sampling(const Sampling& sampling) {
  check(sampling.temperature >= 0.0 && std::isfinite(sampling.temperature),
        ErrorCode::invalid_argument, kOp, "got a temperature of ", sampling.temperature,
        "; expected 0 (greedy) or a number above it");
  check(sampling.top_k >= 0, ErrorCode::invalid_argument, kOp, "got top_k ", sampling.top_k,
        "; expected a number of tokens, or 0 for all");
  check(sampling.top_p > 0.0 && sampling.top_p <= 1.0, ErrorCode::invalid_argument, kOp,
        "got top_p ", sampling.top_p, "; expected a probability above 0, up to 1");
}

// In [0, 1), with 53 bits.
double uniform(std::uint64_t seed, std::uint64_t step) {
  const PhiloxBlock block = philox4x32(seed, step);
  const std::uint64_t bits = (std::uint64_t{block[0]} << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

class Stopwatch {
 public:
  // Seconds since the last call.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::int32_t sample(std::span<const float> logits, const Sampling& sampling, std::uint64_t step) {
  check_sampling(sampling);
  const auto is_less = [](float a, float b) { return std::isnan(a) ? !std::isnan(b) : a < b; };
  const auto largest = std::ranges::max_element(logits, is_less);
  check(largest != logits.end() && !std::isnan(*largest), ErrorCode::invalid_argument, kOp,
        "all logits are NaN: a weight or a scale of the model is NaN (octavo verify names it)");
  const auto best = static_cast<std::int32_t>(largest - logits.begin());
  if (sampling.temperature == 0.0 || std::isinf(*largest)) return best;

  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto comes_before = [&](std::int32_t a, std::int32_t b) {
    return is_less(logit(b), logit(a)) || (!is_less(logit(a), logit(b)) && a < b);
  };
  const auto all = static_cast<std::int64_t>(order.size());
  const std::int64_t kept = sampling.top_k == 0 ? all : std::min(sampling.top_k, all);
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), comes_before);
  order.resize(static_cast<std::size_t>(kept));

  std::vector<double> weights;
  double sum = 0.0;
  for (const std::int32_t id : order) {
    const double weight =
        std::isnan(logit(id))
            ? 0.0
            : std::exp((static_cast<double>(logit(id)) - static_cast<double>(*largest)) /
                       sampling.temperature);
    weights.push_back(weight);
    sum += weight;
  }
  if (sampling.top_p < 1.0) {
    double together = 0.0;
    std::size_t count = 0;
    while (count < weights.size() && together < sampling.top_p * sum) together += weights[count++];
    weights.resize(std::max<std::size_t>(count, 1));
    sum = together;
  }
  double drawn = uniform(sampling.seed, step) * sum;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (drawn < weights[i]) return order[i];
    drawn -= weights[i];
  }
  return best;  // only rounding leads here
}

GenerateResult generate(const Decoder& model, std::span<const std::int32_t> prompt,
                        const GenerateOptions& options) {
  check_sampling(options.sampling);
  check(options.max_tokens >= 0, ErrorCode::invalid_argument, kOp, "got max_tokens ",
        options.max_tokens, "; expected 0 or more");
  const ModelConfig& config = model.config();
  DecoderCache cache = model.make_cache(options.cache);
  GenerateResult out;
  Stopwatch watch;
  Tensor logits = model.next_logits(prompt, cache, options.run);
  out.prompt_seconds = watch.lap();
  for (std::int64_t step = 0; step < options.max_tokens; ++step) {
    const std::int32_t id =
        sample(logits.span<float>(), options.sampling, static_cast<std::uint64_t>(step));
    if (options.stop_at_eos && std::ranges::find(config.eos, id) != config.eos.end()) {
      out.at_eos = true;
      break;
    }
    out.ids.push_back(id);
    if (options.on_token && !options.on_token(id)) break;
    if (step + 1 == options.max_tokens || cache.length() >= config.max_positions) break;
    logits = model.next_logits({&id, 1}, cache, options.run);
  }
  out.seconds = watch.lap();
  return out;
}

}  // namespace octavo
