// utf8proc gives decompositions, classes and compositions of characters. The order of marks is made
// here: utf8proc's own takes quadratic time, and a text may be one long run of marks.
#include "octavo/model/tokenizer/normal_form_internal.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json/json_text_internal.h"
#include "octavo/model/tokenizer/unicode_internal.h"
#include "octavo/model/tokenizer/unicode_tables_internal.h"

namespace octavo::tokenizer {
namespace {

using Point = utf8proc_int32_t;

bool is_left_alone(std::uint32_t point) {
  const auto all = not_normalized_characters();
  const auto at = std::partition_point(
      all.begin(), all.end(), [&](const CharacterRange& range) { return range.last < point; });
  return at != all.end() && point >= at->first;
}

void decompose(std::uint32_t point, bool compatible, std::vector<Point>& out) {
  std::array<Point, 32> parts{};  // the longest decomposition has 18
  int last_class = UTF8PROC_BOUNDCLASS_START;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<Point>(point), parts.data(),
                              static_cast<utf8proc_ssize_t>(parts.size()), options, &last_class);
  check(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()), ErrorCode::internal,
        "tokenizer", "utf8proc did not decompose U+", point);
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

int class_of(Point point) { return utf8proc_get_property(point)->combining_class; }

// Marks between two starters by their class, those of one class in their order.
void order_marks(std::vector<Point>& points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (class_of(points[i]) == 0) continue;
    std::size_t end = i + 1;
    while (end < points.size() && class_of(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(i),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [](Point a, Point b) { return class_of(a) < class_of(b); });
    i = end;
  }
}

// Characters with nothing among them that is left alone.
void append_normal(std::string_view text, NormalForm form, std::vector<Point>& points,
                   std::string& out) {
  if (text.empty()) return;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  points.clear();
  for (std::size_t at = 0; at < text.size();) decompose(next_point(text, at), compatible, points);
  order_marks(points);
  auto count = static_cast<utf8proc_ssize_t>(points.size());
  if (form == NormalForm::nfc || form == NormalForm::nfkc)
    count = utf8proc_normalize_utf32(
        points.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(out, static_cast<std::uint32_t>(points[static_cast<std::size_t>(i)]));
}

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<Point> points;
  std::size_t done = 0;  // bytes of the text that are in `out`
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    // ASCII is normal in every form; its last character may take the marks that follow.
    const std::size_t begin = std::max(done, at > 0 ? at - 1 : 0);
    out += text.substr(done, begin - done);
    std::size_t end = at, part = begin;
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) {
      const std::size_t here = end;
      if (!is_left_alone(next_point(text, end))) continue;
      append_normal(text.substr(part, here - part), form, points, out);
      out += text.substr(here, end - here);
      part = end;
    }
    append_normal(text.substr(part, end - part), form, points, out);
    done = at = end;
  }
  return out += text.substr(done);
}

std::string lower_case(std::string_view text) {
  // Pairs that are younger than utf8proc 2.8, by distance.
  struct Pairs {
    std::uint32_t first, last;
    std::int32_t distance;
  };
  static constexpr std::array<Pairs, 11> kYounger{{{0x1C89, 0x1C89, 1},
                                                   {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                                   {0xA7CC, 0xA7CC, 1},
                                                   {0xA7CE, 0xA7CE, 1},
                                                   {0xA7D2, 0xA7D2, 1},
                                                   {0xA7D4, 0xA7D4, 1},
                                                   {0xA7DA, 0xA7DA, 1},
                                                   {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                                   {0x10D50, 0x10D65, 0x20},
                                                   {0x16EA0, 0x16EB8, 0x1B},
                                                   {0x130, 0x130, 'i' - 0x130}}};
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t point = next_point(text, at);
    auto lower = static_cast<std::uint32_t>(utf8proc_tolower(static_cast<Point>(point)));
    for (const Pairs& pairs : kYounger)
      if (point >= pairs.first && point <= pairs.last)
        lower = point + static_cast<std::uint32_t>(pairs.distance);
    append_utf8(out, lower);
    if (point == 0x130) append_utf8(out, 0x307);  // the only one of two characters
  }
  return out;
}

bool is_numeric(std::uint32_t point) {
  if (point < 0x80) return point >= '0' && point <= '9';
  const auto more = youngest_numbers();
  if (std::any_of(more.begin(), more.end(), [&](const CharacterRange& range) {
        return point >= range.first && point <= range.last;
      }))
    return true;
  const utf8proc_category_t category =
      utf8proc_category(static_cast<utf8proc_int32_t>(stand_in_of(point)));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

std::string_view missing_for_normal_forms() { return {}; }

}  // namespace octavo::tokenizer
