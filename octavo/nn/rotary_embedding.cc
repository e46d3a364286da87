#include "octavo/nn/rotary_embedding.h"

#include <algorithm>
#include <cmath>

#include "octavo/ops/rope.h"

namespace octavo {

std::vector<float> rope_frequencies(double base, std::int64_t rotated) {
  std::vector<float> out(static_cast<std::size_t>(rotated / 2));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotated);
    out[i] = 1.0F / std::pow(static_cast<float>(base), exponent);
  }
  return out;
}

std::vector<float> RotaryEmbedding::frequencies_for(std::int64_t length) const {
  if (!long_inverse_frequencies.empty() && length > long_after) return long_inverse_frequencies;
  if (!dynamic || length <= dynamic->max_positions) return inverse_frequencies;
  const auto rotated = static_cast<double>(2 * inverse_frequencies.size());
  const double stretch =
      dynamic->factor * static_cast<double>(length) / static_cast<double>(dynamic->max_positions) -
      (dynamic->factor - 1.0);
  const double base = dynamic->base * std::pow(stretch, rotated / (rotated - 2.0));
  return rope_frequencies(base, static_cast<std::int64_t>(rotated));
}

void RotaryEmbedding::forward(const View& x, std::int64_t first, std::int64_t context,
                              const LinearRun& run) const {
  if (!rotates()) return;
  const std::vector<float> frequencies = frequencies_for(context);
  rope_into(x,
            {.inverse_frequencies = view_of(std::span<const float>(frequencies)),
             .factor = attention_factor,
             .first_position = first},
            x,
            {.threads = run.threads, .backend = run.backend, .log = run.log, .stream = run.stream});
}

}  // namespace octavo
