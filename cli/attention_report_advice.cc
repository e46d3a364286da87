// What the rungs of octavo attention-report are, and which one to choose.

#include <algorithm>
#include <array>
#include <optional>

#include "cli/attention_report.h"
#include "cli/text/formatted.h"

namespace octavo::cli {
namespace {

// In the order of AttentionRung; docs/numerics/attention.md has the same table.
constexpr std::array<RungWords, 9> kWords{{
    {"nothing is rounded: f64, what the others are held against", "as given", "as given", "f64",
     "reference only"},
    {"everything in f32", "f32", "f32", "f32", "4"},
    {"everything in bf16: what 16-bit kernels do", "bf16", "bf16", "bf16", "2"},
    {"everything in f16, sums in f32: for inputs of f16, within 65504", "f16", "f16", "f16", "2"},
    {"FP8 inputs, and weights in two FP8 terms: exact attention of those inputs",
     "e4m3, a scale per token", "e4m3, a scale per channel", "two e4m3 terms", "1.5"},
    {"Q and K in INT8, K without its mean and both rotated, so that outliers spread; the rest in "
     "bf16",
     "int8 per token, K smoothed, both rotated", "bf16", "bf16", "1.5"},
    {"everything in FP8, K without its mean: the cheapest", "e4m3 per token, K smoothed",
     "e4m3 per channel", "e4m3, times 256", "1"},
    {"a counterexample, never to be used: FP8 without scales", "e4m3, no scale", "e4m3, no scale",
     "divided by its sum, then e4m3", "reference only"},
    {"per head and range of rows the cheapest of fast, balanced, strict, bf16, f16 (of f16 "
     "inputs) and f32 that meets the tolerance",
     "as chosen", "as chosen", "as chosen", "1 to 4"},
}};

// Those that a program would run by name, the cheapest first.
constexpr std::array<AttentionRung, 6> kByCost{AttentionRung::fast,     AttentionRung::strict,
                                               AttentionRung::balanced, AttentionRung::bf16,
                                               AttentionRung::f16,      AttentionRung::f32};

const AttentionRungError* find(const AttentionCase& inputs, AttentionRung rung) {
  const auto at = std::find_if(inputs.rungs.begin(), inputs.rungs.end(),
                               [&](const AttentionRungError& error) { return error.rung == rung; });
  return at == inputs.rungs.end() ? nullptr : &*at;
}

bool passes(const AttentionCase& inputs, AttentionRung rung) {
  const AttentionRungError* const error = find(inputs, rung);
  return error != nullptr && error->failures == 0;
}

std::optional<AttentionRung> cheapest(const AttentionCase& inputs) {
  for (const AttentionRung rung : kByCost)
    if (passes(inputs, rung)) return rung;
  return std::nullopt;
}

// Where the error of a rung is largest on its way.
std::string largest_step(const AttentionStages& stages) {
  const std::array<std::pair<double, std::string_view>, 3> steps{
      {{stages.inputs, "of its rounded inputs"},
       {stages.scores, "of the scores, Q K^T"},
       {stages.weights, "of the weights, after softmax"}}};
  const auto most = std::max_element(steps.begin(), steps.end());
  return formatted("its largest error on the way is that {} ({:.2g} %)", most->second,
                   100 * most->first);
}

std::string advice_for(const AttentionCase& inputs) {
  const std::optional<AttentionRung> good = cheapest(inputs);
  std::string out = formatted("{}: ", inputs.name);
  if (good)
    out += formatted("{} is the cheapest that passes", name_of(*good));
  else
    out += "none of the rungs that were run passes";
  // The cheapest that was run and fails: what stands in the way of it.
  for (const AttentionRung rung : kByCost) {
    if (good == rung) break;
    const AttentionRungError* const error = find(inputs, rung);
    if (error == nullptr || error->failures == 0) continue;
    out += formatted("; {} fails at {:.2g} % of the elements, and {}", name_of(rung),
                     100 * share_of(*error, error->failures), largest_step(error->stages));
    break;
  }
  return out;
}

}  // namespace

const RungWords& words_of(AttentionRung rung) { return kWords[static_cast<std::size_t>(rung)]; }

double share_of(const AttentionRungError& error, std::int64_t failures) {
  return error.elements > 0 ? static_cast<double>(failures) / static_cast<double>(error.elements)
                            : 0.0;
}

std::string chosen_rungs(const AttentionRungError& error) {
  std::string words;
  for (std::size_t i = 0; i < error.rows_by_rung.size(); ++i)
    if (error.rows_by_rung[i] > 0)
      words += formatted("{}{} {}", words.empty() ? "" : ", ",
                         name_of(static_cast<AttentionRung>(i)), error.rows_by_rung[i]);
  return words;
}

std::vector<AttentionRung> rungs_of(const AttentionFindings& findings) {
  std::vector<AttentionRung> out;
  for (const AttentionCase& inputs : findings.cases)
    for (const AttentionRungError& error : inputs.rungs)
      if (std::find(out.begin(), out.end(), error.rung) == out.end()) out.push_back(error.rung);
  return out;
}

std::vector<std::string> advice_of(const AttentionFindings& findings) {
  std::vector<std::string> out;
  for (const AttentionCase& inputs : findings.cases) out.push_back(advice_for(inputs));
  const auto on_all = [&](AttentionRung rung) {
    return !findings.cases.empty() &&
           std::all_of(findings.cases.begin(), findings.cases.end(),
                       [&](const AttentionCase& inputs) { return passes(inputs, rung); });
  };
  const auto good = std::find_if(kByCost.begin(), kByCost.end(), on_all);
  std::string all = good == kByCost.end()
                        ? "of all inputs: no rung that was run passes by itself"
                        : formatted("of all inputs: {} passes everywhere", name_of(*good));
  if (on_all(AttentionRung::automatic))
    all +=
        "; auto passes everywhere too, and takes a cheaper rung where that is good enough: "
        "leave the choice to it";
  if (findings.cases.size() > 1) out.push_back(all);
  return out;
}

}  // namespace octavo::cli
