#include "octavo/pipeline/mix/mix.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/pipeline/mix/mix_candidates_internal.h"
#include "octavo/pipeline/mix/mix_errors_internal.h"
#include "octavo/pipeline/mix/mix_options_internal.h"
#include "octavo/pipeline/mix/mix_points_internal.h"
#include "octavo/quant/scaling.h"

namespace octavo {
namespace {

using namespace mix;

constexpr std::string_view kOp = "mix";
constexpr double kMostBits = 64;
constexpr std::size_t kMostCandidates = 10;

std::vector<std::string> candidates_of(const MixBudget& budget, Dialect target) {
  const std::vector<std::string>& given = budget.candidates;
  if (given.empty()) return default_candidates(target);
  check(given.size() <= kMostCandidates, ErrorCode::invalid_argument, kOp, "got ", given.size(),
        " candidates; expected ", kMostCandidates, " at most");
  for (const std::string& name : given) {
    if (name != "none") (void)preset(name);  // throws if there is none such
    check(std::count(given.begin(), given.end(), name) == 1, ErrorCode::invalid_argument, kOp,
          "got the candidate '", shown(name), "' twice; expected each once");
  }
  return given;
}

void check_budget(const MixBudget& budget, const QuantizeCheckpointOptions& options) {
  const bool bits = budget.bits_per_weight > 0, bytes = budget.bytes > 0;
  check(bits != bytes, ErrorCode::invalid_argument, kOp,
        bits ? "got both a budget of bits per weight and one of bytes; expected one of them"
             : "got no budget; expected bits per weight, such as 4.5, or bytes of the output");
  check(!bits || budget.bits_per_weight <= kMostBits, ErrorCode::invalid_argument, kOp,
        "got a budget of ", budget.bits_per_weight, " bits per weight; expected at most ",
        kMostBits);
  check(options.plan.recipe.empty(), ErrorCode::invalid_argument, kOp, "got the recipe '",
        shown(options.plan.recipe),
        "' and a budget, by which recipes are chosen; leave one of them out, or name candidates "
        "(option candidates)");
  check(!options.delete_source, ErrorCode::invalid_argument, kOp,
        "got option delete_source and a budget: a call that goes on would measure all weights "
        "again, deleted ones too; plan first and give what it says as recipe and recipe_for");
}

// Only these recipes.
std::vector<Choices> within(const Units& units, const std::vector<bool>& set) {
  std::vector<Choices> out;
  for (const Unit& unit : units.units) {
    Choices choices = unit.choices;
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (!set[i]) choices[i].reset();
    // What no recipe of the set fits stays as it is.
    if (std::none_of(choices.begin(), choices.end(), [](const auto& one) { return !!one; }))
      choices.back() = Choice{.bytes = unit.bytes_before, .error = 0};
    out.push_back(std::move(choices));
  }
  return out;
}

// The best of the sets, with what is needed to say how it was found.
struct Solved {
  std::vector<bool> set{};
  std::vector<Choices> choices{};
  Frontier frontier{};
  Mix mix{};
};

// Never worse than one recipe for all, where that is within the budget.
Mix best_mix(const std::vector<Choices>& choices, std::size_t none, std::uint64_t bytes, Mix mix) {
  for (std::size_t recipe = 0; recipe <= none; ++recipe) {
    std::optional<Mix> uniform = uniform_mix(choices, recipe, none);
    if (uniform && uniform->bytes <= bytes && uniform->error < mix.error) mix = std::move(*uniform);
  }
  return mix;
}

std::optional<Solved> solve(const Units& units, const std::vector<std::vector<bool>>& sets,
                            std::uint64_t bytes, std::uint64_t& least) {
  std::optional<Solved> best;
  for (const std::vector<bool>& set : sets) {
    Solved one{.set = set, .choices = within(units, set)};
    one.frontier = frontier_of(one.choices);
    const std::uint64_t cheapest = mix_of(one.choices, one.frontier.cheapest).bytes;
    least = least == 0 ? cheapest : std::min(least, cheapest);
    std::optional<Mix> mix = best_within(one.choices, one.frontier, bytes);
    if (!mix) continue;
    one.mix = best_mix(one.choices, units.none(), bytes, std::move(*mix));
    if (!best || one.mix.error < best->mix.error) best = std::move(one);
  }
  return best;
}

double bits_of(std::uint64_t bytes, const Units& units) {
  return 8 * static_cast<double>(bytes) /
         static_cast<double>(std::max<std::int64_t>(1, units.elements));
}

// Bytes that units may take together.
std::uint64_t allowed(const MixBudget& budget, const Units& units) {
  if (budget.bytes > 0)
    return budget.bytes > units.other_bytes ? budget.bytes - units.other_bytes : 0;
  return static_cast<std::uint64_t>(
      std::floor(budget.bits_per_weight * static_cast<double>(units.elements) / 8));
}

[[noreturn]] void fail_too_small(const MixBudget& budget, const Units& units, std::uint64_t least) {
  const std::uint64_t all = least + units.other_bytes;
  // Rounded up, so that what is said is enough.
  const double bits = std::ceil(bits_of(least, units) * 1000) / 1000;
  if (budget.bytes > 0)
    fail(ErrorCode::invalid_argument, kOp, "got a budget of ", budget.bytes,
         " bytes; the least that these recipes can is ", all, " (", bits, " bits per weight, and ",
         units.other_bytes,
         " bytes of tensors that stay as they are); give more, or name candidates of fewer bits");
  fail(ErrorCode::invalid_argument, kOp, "got a budget of ", budget.bits_per_weight,
       " bits per weight; the least that these recipes can is ", bits,
       "; give more, or name candidates of fewer bits");
}

}  // namespace

double parse_bits_per_weight(std::string_view typed) {
  std::string_view digits = typed;
  if (digits.ends_with("bpw")) digits.remove_suffix(3);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check(error == std::errc{} && end == digits.data() + digits.size() && value > 0 &&
            value <= kMostBits,
        ErrorCode::invalid_argument, kOp, "got '", shown(typed),
        "'; expected bits per weight, such as 4.5bpw");
  return value;
}

MixChoice choose_mix(const std::string& path, const MixBudget& budget,
                     const QuantizeCheckpointOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  check_budget(budget, options);
  const Dialect target = options.plan.target;
  const std::vector<std::string> names = candidates_of(budget, target);
  const bool may_stay = std::find(names.begin(), names.end(), "none") != names.end();
  const CheckpointReader source = open_values(path, copied_files(options.follow_links));
  const std::vector<Candidate> candidates = plan_candidates(source, options.plan, names);
  Units units = units_of(source, candidates, may_stay);
  const std::vector<std::vector<bool>> sets = possible_sets(source, target, units);
  check(!sets.empty(), ErrorCode::unsupported, kOp, "no loader of target ", name_of(target),
        " reads any of the candidates; name others (option candidates)");
  const std::uint64_t bytes = allowed(budget, units);
  std::uint64_t least = 0;
  // What cannot be met is said before anything is measured.
  if (!solve(units, sets, bytes, least)) fail_too_small(budget, units, least);
  measure_units(source, options, units);
  std::optional<Solved> solved = solve(units, sets, bytes, least);
  if (!solved) fail_too_small(budget, units, least);

  MixChoice out{.plan = mixed_options(source, options.plan, units, solved->mix), .result = {}};
  auto result = std::make_shared<MixResult>(
      mix_result(units, candidates, solved->set, solved->choices, solved->frontier, solved->mix));
  result->budget = budget.bytes > 0 ? text("at most ", budget.bytes, " bytes")
                                    : text(budget.bits_per_weight, " bits per weight");
  result->measure = options.plan.statistics != nullptr
                        ? "squared error of results over their energy, columns weighted by E[x^2]"
                        : "squared error of weights over their squares";
  check_mixed(source, out.plan, units, solved->mix);
  result->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  out.result = std::move(result);
  return out;
}

}  // namespace octavo
