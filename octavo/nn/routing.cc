#include <algorithm>
#include <cmath>
#include <numeric>

#include "octavo/nn/routing_internal.h"

namespace octavo {
namespace {

bool comes_before(std::span<const float> logits, std::int32_t a, std::int32_t b) {
  const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
  if (std::isnan(x) || std::isnan(y)) return std::isnan(y) && (!std::isnan(x) || a < b);
  return x > y || (x == y && a < b);
}

// The weights of the top-k experts of one token.
void weigh(std::span<const float> logits, std::span<const std::int32_t> top,
           const MixtureOfExperts& layer, std::span<float> weights) {
  const auto logit = [&](std::int32_t expert) {
    return static_cast<double>(logits[static_cast<std::size_t>(expert)]);
  };
  const double largest = logit(top.front());
  double sum_top = 0.0, sum_all = 0.0;
  for (const std::int32_t expert : top) sum_top += std::exp(logit(expert) - largest);
  for (const float one : logits) sum_all += std::exp(static_cast<double>(one) - largest);
  // A softmax over the top-k is one over all that is normalized.
  const bool over_chosen = layer.kind == RouterKind::top_then_softmax || layer.normalized;
  for (std::size_t i = 0; i < top.size(); ++i)
    weights[i] =
        static_cast<float>(std::exp(logit(top[i]) - largest) / (over_chosen ? sum_top : sum_all));
}

}  // namespace

Routing route(std::span<const float> logits, std::int64_t experts, const MixtureOfExperts& layer) {
  const auto count = static_cast<std::size_t>(experts);
  const std::size_t top_k = static_cast<std::size_t>(layer.top_k), tokens = logits.size() / count;
  Routing out{.top_k = layer.top_k};
  out.experts.resize(tokens * top_k);
  out.weights.resize(tokens * top_k);
  out.sorted_rows.resize(tokens * top_k);
  out.tokens.resize(tokens * top_k);
  out.counts.assign(count, 0);
  std::vector<std::int32_t> order(count);
  for (std::size_t token = 0; token < tokens; ++token) {
    const auto row = logits.subspan(token * count, count);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top_k),
                      order.end(),
                      [&](std::int32_t a, std::int32_t b) { return comes_before(row, a, b); });
    const auto taken = std::span(order).first(top_k);
    std::ranges::copy(taken, out.experts.begin() + static_cast<std::ptrdiff_t>(token * top_k));
    weigh(row, taken, layer, std::span(out.weights).subspan(token * top_k, top_k));
    for (const std::int32_t expert : taken) ++out.counts[static_cast<std::size_t>(expert)];
  }
  std::vector<std::int64_t> next(count, 0);
  std::exclusive_scan(out.counts.begin(), out.counts.end(), next.begin(), std::int64_t{0});
  for (std::size_t pair = 0; pair < out.experts.size(); ++pair) {
    const std::int64_t place = next[static_cast<std::size_t>(out.experts[pair])]++;
    out.sorted_rows[pair] = place;
    out.tokens[static_cast<std::size_t>(place)] = static_cast<std::int64_t>(pair / top_k);
  }
  return out;
}

}  // namespace octavo
