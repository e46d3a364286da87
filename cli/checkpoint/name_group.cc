#include "cli/checkpoint/name_group.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <iterator>

namespace octavo::cli {
namespace {

constexpr std::size_t kMaxRuns = 8;

bool is_number(std::string_view part) {
  return !part.empty() &&
         std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The parts of a name between its dots.
void for_each_part(std::string_view name, const std::function<void(std::string_view)>& take) {
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('.'), name.size());
    take(name.substr(0, end));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
}

void append(std::string& name, std::string_view part) {
  if (!name.empty()) name += '.';
  name += part;
}

void add_number(std::map<std::uint64_t, std::uint64_t>& runs, std::uint64_t number) {
  auto next = runs.upper_bound(number);
  const auto before = next == runs.begin() ? runs.end() : std::prev(next);
  if (before != runs.end() && before->second >= number) return;
  std::uint64_t first = number, last = number;
  if (next != runs.end() && next->first == number + 1) {
    last = next->second;
    runs.erase(next);
  }
  if (before != runs.end() && before->second + 1 == number) first = before->first;
  runs[first] = last;
}

}  // namespace

std::string without_numbers(std::string_view name) {
  std::string out;
  for_each_part(name, [&](std::string_view part) { append(out, is_number(part) ? "*" : part); });
  return out;
}

void NumbersOf::add(std::string_view name) {
  std::size_t star = 0;
  for_each_part(name, [&](std::string_view part) {
    if (!is_number(part)) return;
    std::uint64_t number = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), number);
    if (runs_.size() <= star) runs_.resize(star + 1);
    if (read.ec == std::errc()) add_number(runs_[star], number);
    ++star;
  });
}

std::string NumbersOf::in(std::string_view pattern) const {
  std::string out;
  std::size_t star = 0;
  for_each_part(pattern, [&](std::string_view part) {
    const std::size_t at = star;
    if (part != "*" || (star++, at >= runs_.size() || runs_[at].empty())) return append(out, part);
    std::string numbers;
    std::size_t shown = 0;
    for (const auto& [first, last] : runs_[at]) {
      if (shown++ == kMaxRuns) {
        numbers += ",..";
        break;
      }
      numbers += (numbers.empty() ? "" : ",") + std::to_string(first);
      if (last > first) numbers += "-" + std::to_string(last);
    }
    append(out, numbers);
  });
  return out;
}

}  // namespace octavo::cli
