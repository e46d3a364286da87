#include "octavo/model/tokenizer/text_normalizer_internal.h"

#include <array>
#include <utility>

#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {
namespace {

std::string strip(std::string_view text, bool left, bool right, bool& keeps_begin) {
  while (left && !text.empty()) {
    std::size_t at = 0;
    if (!is_white_space(next_point(text, at))) break;
    text.remove_prefix(at);
    keeps_begin = false;
  }
  while (right && !text.empty()) {
    std::size_t begin = text.size();
    do --begin;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
    std::size_t at = begin;
    if (!is_white_space(next_point(text, at))) break;
    text.remove_suffix(text.size() - begin);
  }
  return std::string(text);
}

std::string replace(std::string_view text, const Pattern& pattern, std::string_view by,
                    MatchMemory& memory, const GrowthLimit& limit, bool& keeps_begin) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  std::size_t done = 0;
  pattern.each(text, memory, [&](std::size_t begin, std::size_t end) {
    // What replaces a match comes from its last character.
    if (begin == 0 && end > 0 && (by.empty() || end != character_bytes(text[0])))
      keeps_begin = false;
    out += text.substr(done, begin - done);
    out += by;
    limit.check_bytes(out.size());
    done = end;
  });
  return out += text.substr(done);
}

template <typename... Each>
struct Overloaded : Each... {
  using Each::operator()...;
};
template <typename... Each>
Overloaded(Each...) -> Overloaded<Each...>;

}  // namespace

TextNormalizer::TextNormalizer(const Part& part) {
  each_of_sequence(part, "normalizers", [&](const Part& one) { add(one); });
  check_steps(steps_.size(), "normalizers");
}

void TextNormalizer::add(const Part& part) {
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms{
      {{"NFC", NormalForm::nfc},
       {"NFD", NormalForm::nfd},
       {"NFKC", NormalForm::nfkc},
       {"NFKD", NormalForm::nfkd}}};
  const std::string_view type = part.type();
  for (const auto& [name, form] : kForms)
    if (type == name) {
      steps_.emplace_back(form);
      return;
    }
  if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "Strip") {
    steps_.emplace_back(Strip{part["strip_left"].boolean(), part["strip_right"].boolean()});
  } else if (type == "Prepend") {
    steps_.emplace_back(Prepend{std::string(part["prepend"].string())});
  } else if (type == "Replace") {
    steps_.emplace_back(Replace{Pattern(part["pattern"]), std::string(part["content"].string())});
  } else {
    part.unknown("a normalizer of the kind",
                 "NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace, Sequence");
  }
}

std::string TextNormalizer::normalize(std::string_view text, MatchMemory& memory,
                                      GrowthLimit& limit, bool& keeps_begin) const {
  std::string now(text);
  for (const Step& step : steps_) {
    now = std::visit(
        Overloaded{[&](NormalForm form) { return normal_form(now, form); },
                   [&](const Lowercase&) { return lower_case(now); },
                   [&](const Strip& one) { return strip(now, one.left, one.right, keeps_begin); },
                   [&](const Prepend& one) { return now.empty() ? now : one.text + now; },
                   [&](const Replace& one) {
                     return replace(now, one.pattern, one.text, memory, limit, keeps_begin);
                   }},
        step);
    limit.check_bytes(now.size());
  }
  limit.take(now.size());
  return now;
}

}  // namespace octavo::tokenizer
