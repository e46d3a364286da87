// The scalings of RoPE that checkpoints have, computed in f32 in the order of transformers' own
// operations (modeling_rope_utils.py): angles of far positions show the last bits of frequencies.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "octavo/base/error.h"
#include "octavo/model/rope_config_internal.h"

namespace octavo {
namespace {

struct Rotation {
  ConfigValues values;
  RopeDefaults defaults;
  double theta = 1e4;
  std::int64_t rotated = 0;  // elements of a head

  [[nodiscard]] std::int64_t original_positions() const {
    if (defaults.original_max_positions > 0) return defaults.original_max_positions;
    return values.size("original_max_position_embeddings", defaults.max_positions);
  }
};

double factor_of(const Rotation& rotation) {
  check(rotation.values.has("factor"), ErrorCode::invalid_argument, kConfigOp,
        "the RoPE scaling has no factor; expected a number above zero");
  return rotation.values.positive("factor", 1.0);
}

void scale_linearly(const Rotation& rotation, RotaryEmbedding& out) {
  const auto factor = static_cast<float>(factor_of(rotation));
  for (float& frequency : out.inverse_frequencies) frequency /= factor;
}

// Low frequencies are divided by the factor, high ones are as they are, those between mixed.
void scale_as_llama3(const Rotation& rotation, RotaryEmbedding& out) {
  const auto factor = static_cast<float>(factor_of(rotation));
  const double low = rotation.values.positive("low_freq_factor", 1.0),
               high = rotation.values.positive("high_freq_factor", 4.0);
  check(high > low, ErrorCode::invalid_argument, kConfigOp, "got high_freq_factor ", high,
        " and low_freq_factor ", low, "; expected the first to be larger");
  const auto context = static_cast<double>(rotation.original_positions());
  const auto longest = static_cast<float>(context / low),
             shortest = static_cast<float>(context / high);
  for (float& frequency : out.inverse_frequencies) {
    const float wave = static_cast<float>(2.0 * std::numbers::pi) / frequency;
    if (wave > longest) {
      frequency /= factor;
    } else if (!(wave < shortest)) {
      const float smooth = (static_cast<float>(context) / wave - static_cast<float>(low)) /
                           static_cast<float>(high - low);
      frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

double yarn_attention_factor(const ConfigValues& values, double factor) {
  if (const auto given = values.number("attention_factor")) return *given;
  const auto mscale = [&](double by) {
    return factor <= 1.0 ? 1.0 : 0.1 * by * std::log(factor) + 1.0;
  };
  const double one = values.number("mscale").value_or(0.0),
               all = values.number("mscale_all_dim").value_or(0.0);
  return one != 0.0 && all != 0.0 ? mscale(one) / mscale(all) : mscale(1.0);
}

// YaRN: pairs that turn often within the old context are as they are, slow ones are divided by the
// factor, a ramp lies between.
void scale_as_yarn(const Rotation& rotation, RotaryEmbedding& out) {
  const ConfigValues& values = rotation.values;
  const auto context = static_cast<double>(rotation.original_positions());
  const double factor = values.has("factor")
                            ? factor_of(rotation)
                            : static_cast<double>(rotation.defaults.max_positions) / context;
  const auto pair_of = [&](double turns) {
    return static_cast<double>(rotation.rotated) *
           std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(rotation.theta));
  };
  double low = pair_of(values.positive("beta_fast", 32.0)),
         high = pair_of(values.positive("beta_slow", 1.0));
  if (values.flag("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotation.rotated - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < out.inverse_frequencies.size(); ++i) {
    const float power = std::pow(static_cast<float>(rotation.theta),
                                 static_cast<float>(2 * i) / static_cast<float>(rotation.rotated));
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0F,
        1.0F);
    const float kept = 1.0F - ramp, divided = 1.0F / (static_cast<float>(factor) * power);
    out.inverse_frequencies[i] = divided * (1.0F - kept) + 1.0F / power * kept;
  }
  out.attention_factor = yarn_attention_factor(values, factor);
}

std::vector<float> divided_frequencies(const Rotation& rotation, std::string_view key) {
  const std::vector<Json>& factors = rotation.values[key].elements();
  const auto pairs = static_cast<std::size_t>(rotation.rotated / 2);
  check(factors.size() == pairs, ErrorCode::invalid_argument, kConfigOp, "got ", factors.size(),
        " numbers in ", key, "; expected ", pairs, ", one for each pair of a head's elements");
  std::vector<float> out(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const double by = factors[i].number_or(0.0);
    check(by > 0.0 && std::isfinite(by), ErrorCode::invalid_argument, kConfigOp, key,
          " has a number that is not above zero");
    const float power = std::pow(static_cast<float>(rotation.theta),
                                 static_cast<float>(2 * i) / static_cast<float>(rotation.rotated));
    out[i] = 1.0F / (static_cast<float>(by) * power);
  }
  return out;
}

void scale_as_longrope(const Rotation& rotation, RotaryEmbedding& out) {
  const std::int64_t original = rotation.original_positions();
  const double stretch = static_cast<double>(rotation.defaults.max_positions) /
                         static_cast<double>(original),
               factor = rotation.values.positive("factor", stretch);
  out.inverse_frequencies = divided_frequencies(rotation, "short_factor");
  out.long_inverse_frequencies = divided_frequencies(rotation, "long_factor");
  out.long_after = original;
  const double usual =
      factor <= 1.0 || original <= 1
          ? 1.0
          : std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original)));
  out.attention_factor = rotation.values.number("attention_factor").value_or(usual);
}

// A factor may be finite and its product or quotient not: positions would become NaN.
void check_numbers(const RotaryEmbedding& rope) {
  const auto is_finite = [](float frequency) { return std::isfinite(frequency); };
  check(std::ranges::all_of(rope.inverse_frequencies, is_finite) &&
            std::ranges::all_of(rope.long_inverse_frequencies, is_finite),
        ErrorCode::invalid_argument, kConfigOp,
        "the RoPE parameters give frequencies that are not finite; expected a rope_theta and "
        "factors nearer to 1");
  check(rope.attention_factor > 0.0 && std::isfinite(static_cast<float>(rope.attention_factor)),
        ErrorCode::invalid_argument, kConfigOp, "got an attention factor of ",
        rope.attention_factor,
        " in the RoPE parameters (attention_factor, or mscale and mscale_all_dim); expected a "
        "number above zero");
}

}  // namespace

RotaryEmbedding parse_rope(const Json& rope, const RopeDefaults& defaults) {
  check(rope.is_null() || rope.is_object(), ErrorCode::invalid_argument, kConfigOp,
        "got RoPE parameters ", shown(rope.dump(0)), "; expected an object");
  const ConfigValues values(rope);
  std::string type(values.word("rope_type", values.word("type", "default")));
  if (type == "su" || (type == "yarn" && defaults.yarn_is_longrope)) type = "longrope";
  Rotation rotation{.values = values, .defaults = defaults};
  rotation.theta = values.positive("rope_theta", defaults.theta);
  const double partial = values.positive("partial_rotary_factor", defaults.partial);
  const bool is_part = partial <= 1.0;  // before it becomes an integer, which has no room for 1e300
  if (is_part)
    rotation.rotated = static_cast<std::int64_t>(static_cast<double>(defaults.head_size) * partial);
  check(is_part && rotation.rotated % 2 == 0 && rotation.rotated > 0, ErrorCode::invalid_argument,
        kConfigOp, "got a partial_rotary_factor of ", partial, " for heads of ", defaults.head_size,
        "; expected an even number of elements that are rotated, up to all of them");

  RotaryEmbedding out{.inverse_frequencies = rope_frequencies(rotation.theta, rotation.rotated)};
  if (type == "default" || type == "none") {
    // as they are
  } else if (type == "linear") {
    scale_linearly(rotation, out);
  } else if (type == "dynamic") {
    check(rotation.rotated > 2, ErrorCode::invalid_argument, kConfigOp,
          "dynamic RoPE needs more than two rotated elements a head");
    out.dynamic = {.base = rotation.theta,
                   .factor = factor_of(rotation),
                   .max_positions = defaults.max_positions};
  } else if (type == "llama3") {
    scale_as_llama3(rotation, out);
  } else if (type == "yarn") {
    scale_as_yarn(rotation, out);
  } else if (type == "longrope") {
    scale_as_longrope(rotation, out);
  } else {
    fail(ErrorCode::unsupported, kConfigOp, "got the RoPE type '", shown(type),
         "'; expected default, linear, dynamic, llama3, yarn or longrope");
  }
  check_numbers(out);
  return out;
}

}  // namespace octavo
