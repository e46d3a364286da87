#include "octavo/pipeline/compare_pairs_internal.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "octavo/checkpoint/dialect/static_scales_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kRowBlockValues = 1 << 17;  // f32 values: half a megabyte per side

// Pairs an expert stack on one side with its matrices on the other.
void match_stacks(const ComparedSide& stacked, std::vector<std::string>& only_stacked,
                  const ComparedSide& apart, std::vector<std::string>& only_apart,
                  bool second_is_stacked, std::vector<ComparedPair>& pairs) {
  std::set<std::string> matched;
  std::erase_if(only_stacked, [&](const std::string& name) {
    const auto parts = stacked.split_experts(name, stacked.all().at(name));
    const auto fits = [&](const auto& part) {
      const auto other = apart.all().find(part.first);
      return other != apart.all().end() && other->second.shape == part.second.shape;
    };
    if (parts.empty() || !std::all_of(parts.begin(), parts.end(), fits)) return false;
    for (const auto& [part, numbers] : parts) {
      const ComparedNumbers& other = apart.all().at(part);
      pairs.push_back({.name = part,
                       .a = second_is_stacked ? other : numbers,
                       .b = second_is_stacked ? numbers : other});
      matched.insert(part);
    }
    return true;
  });
  std::erase_if(only_apart, [&](const std::string& name) { return matched.contains(name); });
}

}  // namespace

std::vector<ComparedPair> pair_tensors(const ComparedSide& a, const ComparedSide& b,
                                       Unpaired& unpaired) {
  std::vector<ComparedPair> pairs;
  for (const auto& [name, numbers] : a.all()) {
    const auto other = b.all().find(name);
    if (other == b.all().end()) {
      unpaired.only_a.push_back(name);
    } else if (other->second.shape != numbers.shape) {
      unpaired.other_shape.push_back(name);
    } else {
      pairs.push_back({.name = name, .a = numbers, .b = other->second});
    }
  }
  for (const auto& [name, numbers] : b.all())
    if (!a.all().contains(name)) unpaired.only_b.push_back(name);
  match_stacks(a, unpaired.only_a, b, unpaired.only_b, false, pairs);
  match_stacks(b, unpaired.only_b, a, unpaired.only_a, true, pairs);
  return pairs;
}

std::vector<ComparedPiece> pieces_of(const ComparedSide& a, const ComparedSide& b,
                                     const std::vector<ComparedPair>& pairs) {
  std::vector<ComparedPiece> pieces;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const ComparedPair& pair = pairs[i];
    if (pair.a.cols == 0) continue;
    const std::int64_t unit = std::lcm(a.unit(pair.a), b.unit(pair.b));
    const bool one_matrix =
        pair.a.shape.size() > 2 && unit > 1 && unit == pair.a.shape[pair.a.shape.size() - 2];
    // A transposed matrix is read whole: its rows are stored columns.
    const bool whole = pair.a.transposed || pair.b.transposed;
    const std::int64_t wanted =
        whole        ? std::max<std::int64_t>(1, (pair.a.rows + unit - 1) / unit)
        : one_matrix ? 1
                     : std::max<std::int64_t>(1, kRowBlockValues / pair.a.cols / unit);
    std::size_t ordinal = 0;
    for (std::int64_t first = 0; first < pair.a.rows; first += wanted * unit)
      pieces.push_back({i, ordinal++, first, std::min(wanted * unit, pair.a.rows - first)});
  }
  return pieces;
}

bool is_dialect_tensor(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOthers{"scaled_fp8", ".q_scale", ".output_scale",
                                                    ".prob_scale"};
  return is_input_scale(name) || is_cache_scale(name) ||
         std::any_of(kOthers.begin(), kOthers.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace octavo
