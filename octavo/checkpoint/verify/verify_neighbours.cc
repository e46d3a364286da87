// Magnitudes of a weight beside the same weight of the layers around it, and of all weights beside
// what is known of models: scales that were multiplied in one layer, or in all of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "octavo/base/error.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify/layer_name_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

// Limits, in octaves, on how far the root mean square of a weight may be outside of the range of
// its neighbours: the same weight in two layers on either side. Training moves it smoothly from
// layer to layer: over the 30 layers of SmolLM2-135M and the 6 of MiniLM-L6 it is at most 0.35
// outside, in the first layer 1.25 (v_proj of SmolLM2: 0.047, 0.126, 0.111 ...). A factor of four
// is two octaves.
constexpr double kInside = 1.3, kAtTheEnd = 1.5;
// The same for the quotient of two weights that training moves together; it stays within 0.6, also
// in the first layer, where both change.
constexpr double kTogether = 1.3;
constexpr std::array<std::array<std::string_view, 2>, 9> kPairs{{{"q_proj", "k_proj"},
                                                                 {"v_proj", "o_proj"},
                                                                 {"gate_proj", "up_proj"},
                                                                 {"up_proj", "down_proj"},
                                                                 {"query", "key"},
                                                                 {"w1", "w3"},
                                                                 {"w1", "w2"},
                                                                 {"fc1", "fc2"},
                                                                 {"wi", "wo"}}};
// Experts of one layer, of which a router may use some far less: outside of all others.
constexpr double kOfExpert = 1.75;

// A weight of one layer: the logarithm of its root mean square times the root of its fan-in.
struct Place {
  std::int64_t layer = 0;
  double log = 0;
  const VerifiedWeight* weight = nullptr;
};
using Series = std::vector<Place>;  // by layer

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>((numbers.size() - 1) / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

double log_of(const VerifiedWeight& weight) {
  const auto cols = static_cast<double>(extent_of(weight.found->weight).cols);
  return std::log2(static_cast<double>(weight.reach.rms) * std::sqrt(cols));
}

bool is_known(const VerifiedWeight& weight) {
  return weight.reach.looked && weight.reach.rms > 0 && std::isfinite(weight.reach.rms);
}

// How far `log` is above (positive) or below the range of the two places on either side.
double outside(const Series& series, std::size_t at) {
  const std::size_t begin = at < 2 ? 0 : at - 2, end = std::min(series.size(), at + 3);
  double low = INFINITY, high = -INFINITY;
  for (std::size_t i = begin; i < end; ++i) {
    if (i == at) continue;
    low = std::min(low, series[i].log);
    high = std::max(high, series[i].log);
  }
  const double log = series[at].log;
  return log > high ? log - high : log < low ? log - low : 0;
}

// "2.5 times", "1/6 of".
std::string times(double octaves) {
  const double factor = std::exp2(std::fabs(octaves));
  const double rounded = factor < 10 ? std::round(factor * 10) / 10 : std::round(factor);
  return octaves > 0 ? text(rounded, " times") : text("1/", rounded, " of");
}

// All experts of a layer as one name: "mlp.experts.*.up_proj".
std::string without_expert(std::string_view rest, bool& expert) {
  constexpr std::string_view kExperts = "experts.";
  const std::size_t at = rest.find(kExperts);
  if (at == std::string_view::npos) return std::string(rest);
  const std::size_t digits = at + kExperts.size();
  const std::size_t end = std::min(rest.find_first_not_of("0123456789", digits), rest.size());
  if (end == digits) return std::string(rest);
  expert = true;
  return text(rest.substr(0, digits), "*", rest.substr(end));
}

void check_experts(const Series& experts, Findings& out, const VerifyView& view,
                   std::set<const VerifiedWeight*>& said) {
  if (experts.size() < 4) return;
  Series sorted = experts;
  std::sort(sorted.begin(), sorted.end(),
            [](const Place& a, const Place& b) { return a.log < b.log; });
  const auto report = [&](const Place& one, double octaves) {
    if (std::fabs(octaves) < kOfExpert) return;
    said.insert(one.weight);
    suspect(view, one.weight->scales->plan.name,
            text("weights are ", times(octaves),
                 " those of any other expert of the layer: were scales changed?"),
            out);
  };
  report(sorted.front(), sorted.front().log - sorted[1].log);
  report(sorted.back(), sorted.back().log - sorted[sorted.size() - 2].log);
}

void check_series(const Series& series, const VerifyView& view, Findings& out,
                  std::set<const VerifiedWeight*>& said) {
  if (series.size() < 2) return;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double octaves = outside(series, i);
    const bool end = i == 0 || i + 1 == series.size();
    if (std::fabs(octaves) < (end ? kAtTheEnd : kInside)) continue;
    said.insert(series[i].weight);
    suspect(view, series[i].weight->scales->plan.name,
            text("weights are ", times(octaves),
                 " those of the layers around it: were scales changed?"),
            out);
  }
}

// Layers that have both, and the logarithm of their quotient.
Series quotients(const Series& a, const Series& b) {
  Series out;
  for (const Place& one : a) {
    const auto other = std::find_if(b.begin(), b.end(),
                                    [&](const Place& place) { return place.layer == one.layer; });
    if (other != b.end()) out.push_back({one.layer, one.log - other->log, one.weight});
  }
  return out;
}

// RMS of a sample of values of an unquantized tensor; 0 where it has none.
double rms_of_plain(const VerifyView& view, const StoredTensor& tensor, double plus = 0) {
  constexpr std::uint64_t kSpots = 4, kOfSpot = 1 << 12;
  constexpr std::array kTypes{safetensors::StoredType::bf16, safetensors::StoredType::f16,
                              safetensors::StoredType::f32};
  const auto type = tensor.entry->type;
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) return 0;
  const auto size = static_cast<std::uint64_t>(safetensors::stored_bits(type) / 8);
  if (tensor.nbytes() < size) return 0;
  const std::uint64_t all = tensor.nbytes() / size, of_spot = std::min(all, kOfSpot);
  std::vector<std::byte> bytes(of_spot * size);
  double squares = 0;
  for (std::uint64_t spot = 0; spot < kSpots; ++spot) {
    view.checkpoint.read(tensor, (all - of_spot) * spot / (kSpots - 1) * size, bytes);
    for (std::uint64_t i = 0; i < of_spot; ++i) {
      const double value = plus + static_cast<double>(stored_number(&bytes[i * size], type));
      squares += value * value;
    }
  }
  const double rms = std::sqrt(squares / static_cast<double>(of_spot * kSpots));
  return std::isfinite(rms) ? rms : 0;
}

// What unquantized tensors tell of a model's magnitudes.
struct Plain {
  double largest = 0;           // RMS of the embedding or head that has most
  std::vector<double> gains{};  // RMS of each norm

  explicit Plain(const VerifyView& view) {
    constexpr int kMaxLooked = 64;
    // These add 1 to the gains of their norms.
    const std::string_view type = view.checkpoint.config()["model_type"].string_or("");
    const double plus = type.starts_with("gemma") || type == "qwen3_next" ? 1 : 0;
    int matrices = 0, norms = 0;
    for (const std::string& name : view.recognized.plain) {
      const StoredTensor& tensor = view.checkpoint.at(name);
      if (!name.ends_with(".weight") || view.misfits.contains(std::string(module_of(name))))
        continue;
      const Role role = role_of(name, tensor.entry->shape, view.checkpoint.config()).role;
      if ((role == Role::embedding || role == Role::head) && ++matrices <= kMaxLooked)
        largest = std::max(largest, rms_of_plain(view, tensor));
      if (role == Role::norm && tensor.entry->shape.size() == 1 && ++norms <= kMaxLooked)
        if (const double gain = rms_of_plain(view, tensor, plus); gain > 0) gains.push_back(gain);
    }
  }
};

}  // namespace

void suspect(const VerifyView& view, std::string_view tensor, const std::string& message,
             Findings& out) {
  if (view.as_written)
    out.warn({kV, kH, kS, kT}, tensor,
             message + " The file is as octavo wrote it, so that the model it was made from is so");
  else
    out.error({kV, kH, kS, kT}, tensor, message);
}

void check_beside_layers(const VerifyView& view, Findings& out) {
  std::map<std::string, Series> roles;                            // by stack and name
  std::map<std::string, std::map<std::int64_t, Series>> experts;  // the same, by layer
  for (const VerifiedWeight& weight : view.weights) {
    const std::optional<InLayer> at = in_layer(weight.found->weight.module);
    if (!at || !is_known(weight)) continue;
    bool expert = false;
    const std::string name = text(at->stack, "\n", without_expert(at->rest, expert));
    const Place place{at->layer, log_of(weight), &weight};
    if (expert)
      experts[name][at->layer].push_back(place);
    else
      roles[name].push_back(place);
  }
  std::set<const VerifiedWeight*> said;
  for (const auto& [name, layers] : experts)
    for (const auto& [layer, of_layer] : layers) {
      check_experts(of_layer, out, view, said);
      std::vector<double> logs;
      for (const Place& one : of_layer) logs.push_back(one.log);
      roles[name].push_back({layer, median(std::move(logs)), of_layer.front().weight});
    }
  for (auto& [name, series] : roles) {
    std::sort(series.begin(), series.end(),
              [](const Place& a, const Place& b) { return a.layer < b.layer; });
    check_series(series, view, out, said);
  }
  for (const auto& [name, series] : roles)
    for (const auto& [first, second] : kPairs) {
      if (!name.ends_with(first)) continue;
      const std::string stem = name.substr(0, name.size() - first.size());
      const auto other = roles.find(text(stem, second));
      if (other == roles.end()) continue;
      const Series pairs = quotients(series, other->second);
      for (std::size_t i = 0; i < pairs.size() && pairs.size() > 1; ++i) {
        const double octaves = outside(pairs, i);
        const bool known = std::any_of(other->second.begin(), other->second.end(), [&](auto& one) {
          return one.layer == pairs[i].layer && said.contains(one.weight);
        });
        if (std::fabs(octaves) < kTogether || known || said.contains(pairs[i].weight)) continue;
        suspect(view, pairs[i].weight->scales->plan.name,
                text("beside ", second, " weights are ", times(octaves),
                     " what they are in the layers around it: were scales of either changed?"),
                out);
      }
    }
}

// All scales multiplied by one factor. Three yardsticks, in octaves: weights beside the embedding
// and the head, which are initialized alike; beside config.json's initializer_range, the standard
// deviation that training begins with; and outputs, the root mean square times the root of the
// fan-in times the gain of norms, beside 1. Each is off by some octaves in one model or another,
// but not all in one direction. Their means: SmolLM2-135M 1.1 (0.6, 2.2, 0.5), MiniLM-L6 0.7
// (0.1, 1.6, 0.5); untrained models, which are all at their initializer_range, -0.9 with 64 columns
// (0, 0, -2.6), and -0.5 with 256. A factor of 16 is four octaves on all three.
void check_all_together(const VerifyView& view, Findings& out) {
  constexpr double kMax = 2.6, kLeast = -2.4;
  std::vector<double> rms, outputs;
  for (const VerifiedWeight& weight : view.weights) {
    if (!is_known(weight)) continue;
    rms.push_back(std::log2(static_cast<double>(weight.reach.rms)));
    outputs.push_back(log_of(weight));
  }
  if (rms.empty()) return;
  const Plain plain(view);
  const double usual = median(std::move(rms));
  const Json& config = view.checkpoint.config();
  double begin = config["initializer_range"].number_or(0);
  if (!(begin > 0)) begin = config["text_config"]["initializer_range"].number_or(0);
  std::vector<double> off{median(std::move(outputs)) +
                          (plain.gains.empty() ? 0 : std::log2(median(plain.gains)))};
  if (plain.largest > 0) off.push_back(usual - std::log2(plain.largest));
  if (begin > 0 && std::isfinite(begin)) off.push_back(usual - std::log2(begin));
  if (off.size() < 2) return;
  double mean = 0;
  for (const double one : off) mean += one / static_cast<double>(off.size());
  if (mean < kMax && mean > kLeast) return;
  std::string beside;
  if (plain.largest > 0) beside += text(", that of the embedding or the head is ", plain.largest);
  if (begin > 0) beside += text(", initializer_range is ", begin);
  suspect(view, "",
          text("the median root mean square of quantized weights is ", std::exp2(usual), beside,
               ", and an output of unit inputs would be about ", std::exp2(off.front()),
               ": all together about ", times(mean), " what models have: were all scales changed?"),
          out);
}

}  // namespace octavo
