#include <algorithm>
#include <array>

#include "octavo/checkpoint/verify/layer_name_internal.h"

namespace octavo {
namespace {

bool is_stack(std::string_view word) {
  constexpr std::array<std::string_view, 5> kStacks{"layers", "layer", "h", "blocks", "block"};
  return std::find(kStacks.begin(), kStacks.end(), word) != kStacks.end();
}

}  // namespace

std::optional<InLayer> in_layer(std::string_view name) {
  std::size_t begin = 0;
  std::string_view before;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view word = name.substr(begin, end - begin);
    const bool number =
        !word.empty() && word.size() < 10 && (word == "0" || word.front() != '0') &&
        std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (number && is_stack(before) && end < name.size()) {
      std::int64_t value = 0;
      for (const char c : word) value = value * 10 + (c - '0');
      return InLayer{name.substr(0, begin), value, name.substr(end + 1)};
    }
    before = word;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace octavo
