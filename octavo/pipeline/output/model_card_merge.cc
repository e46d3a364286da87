// A card and a README.md become one text. Front matter is YAML, of which only the lines of the
// topmost keys are told apart: what octavo adds ends in "# octavo", and what it replaces stays as a
// comment that begins with "# octavo: ", so that without_card() can put it back.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/pipeline/output/model_card_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kBegin = "<!-- octavo: model card -->", kEnd = "<!-- octavo: end -->";
constexpr std::string_view kAdded = " # octavo", kReplaced = "# octavo: ";
constexpr std::string_view kFence = "---", kByteOrderMark = "\xEF\xBB\xBF";

// Without the carriage return of a line that ends in one.
std::string_view content_of(std::string_view line) {
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

std::vector<std::string> lines_of(std::string_view text_of_lines) {
  std::vector<std::string> out;
  while (!text_of_lines.empty()) {
    const std::size_t end = std::min(text_of_lines.find('\n'), text_of_lines.size());
    out.emplace_back(text_of_lines.substr(0, end));
    text_of_lines.remove_prefix(std::min(end + 1, text_of_lines.size()));
  }
  return out;
}

struct Readme {
  std::string fence{kFence};         // with a carriage return where the source has one
  std::vector<std::string> front{};  // lines between the fences
  std::string body{};
};

Readme split(std::string_view readme) {
  if (readme.starts_with(kByteOrderMark)) readme.remove_prefix(kByteOrderMark.size());
  const std::size_t first = readme.find('\n');
  if (first == std::string_view::npos || content_of(readme.substr(0, first)) != kFence)
    return {.body = std::string(readme)};
  for (std::size_t at = first + 1; at < readme.size();) {
    const std::size_t end = std::min(readme.find('\n', at), readme.size());
    if (content_of(readme.substr(at, end - at)) == kFence)
      return {.fence = std::string(readme.substr(0, first)),
              .front = lines_of(readme.substr(first + 1, at - first - 1)),
              .body = std::string(readme.substr(std::min(end + 1, readme.size())))};
    at = end + 1;
  }
  return {.body = std::string(readme)};  // a rule without an end is no front matter
}

std::string joined(const Readme& parts) {
  if (parts.front.empty()) return parts.body;
  std::string out = text(parts.fence, "\n");
  for (const std::string& line : parts.front) out += line + "\n";
  return text(out, parts.fence, "\n", parts.body);
}

// The lines of a topmost key: its own, and those after it that are indented, list items, comments
// or empty.
struct Block {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] bool exists() const { return end > begin; }
};
Block block_of(const std::vector<std::string>& front, std::string_view key) {
  const auto goes_on = [](const std::string& line) {
    const std::string_view content = content_of(line);
    return content.empty() || content.front() == ' ' || content.front() == '-' ||
           content.front() == '\t' || content.front() == '#';
  };
  for (std::size_t i = 0; i < front.size(); ++i) {
    if (!front[i].starts_with(text(key, ":"))) continue;
    Block out{i, i + 1};
    while (out.end < front.size() && goes_on(front[out.end])) ++out.end;
    while (out.end > i + 1 && content_of(front[out.end - 1]).empty()) --out.end;
    return out;
  }
  return {};
}

// A JSON string is a YAML string, whatever is in it.
std::string quoted(std::string_view value) { return Json(std::string(value)).dump(0); }

void replace(std::vector<std::string>& front, std::string_view key, std::string_view value) {
  const Block old = block_of(front, key);
  for (std::size_t i = old.begin; i < old.end; ++i) front[i] = text(kReplaced, front[i]);
  const std::size_t at = old.exists() ? old.begin : front.size();
  front.insert(front.begin() + static_cast<std::ptrdiff_t>(at),
               text(key, ": ", quoted(value), kAdded));
}

// The items of a list in lines of their own, each with its indent and its "- ".
bool is_item(std::string_view line) {
  const std::size_t at = line.find_first_not_of(' ');
  return at != std::string_view::npos && line.substr(at).starts_with("- ");
}

void add_tags(std::vector<std::string>& front, const std::vector<std::string>& tags) {
  const Block old = block_of(front, "tags");
  std::size_t last = old.begin;  // the last item, or the key
  std::string indent, all;
  for (std::size_t i = old.begin; i < old.end; ++i) {
    all += front[i] + "\n";
    if (!is_item(front[i])) continue;
    last = i;
    indent = front[i].substr(0, front[i].find('-'));
  }
  const bool listed = old.exists() && last > old.begin;
  std::vector<std::string> lines;
  if (!listed) lines.push_back(text("tags:", kAdded));
  // A list in brackets stays as a comment, and its tags become lines.
  if (old.exists() && !listed) {
    std::string_view inside = content_of(front[old.begin]);
    const std::size_t open = inside.find('['), close = inside.rfind(']');
    inside = open == std::string_view::npos || close == std::string_view::npos || close < open
                 ? std::string_view()
                 : inside.substr(open + 1, close - open - 1);
    while (!inside.empty()) {
      const std::size_t end = std::min(inside.find(','), inside.size());
      std::string_view tag = inside.substr(0, end);
      tag.remove_prefix(std::min(tag.find_first_not_of(' '), tag.size()));
      if (!tag.empty()) lines.push_back(text("- ", tag, kAdded));
      inside.remove_prefix(std::min(end + 1, inside.size()));
    }
    for (std::size_t i = old.begin; i < old.end; ++i) front[i] = text(kReplaced, front[i]);
  }
  for (const std::string& tag : tags)
    if (all.find(text("- ", tag, "\n")) == std::string::npos)
      lines.push_back(text(indent, "- ", tag, kAdded));
  const std::size_t at = listed ? last + 1 : old.exists() ? old.begin : front.size();
  front.insert(front.begin() + static_cast<std::ptrdiff_t>(at), lines.begin(), lines.end());
}

}  // namespace

std::string with_card(std::string_view readme, const ModelCard& card) {
  Readme parts = split(without_card(readme));
  // Without a name the source's own text may have one, which stays as it is.
  if (!card.base_model.empty()) {
    replace(parts.front, "base_model", card.base_model);
    replace(parts.front, "base_model_relation", "quantized");
  }
  add_tags(parts.front, card.tags);
  parts.body = text(kBegin, "\n", card.body, kEnd, "\n", parts.body);
  return joined(parts);
}

std::string without_card(std::string_view readme) {
  Readme parts = split(readme);
  const std::size_t begin = parts.body.find(kBegin);
  const std::size_t end = begin == std::string::npos ? begin : parts.body.find(kEnd, begin);
  if (end == std::string::npos) return std::string(readme);
  parts.body.erase(begin, end + kEnd.size() + 1 - begin);  // with its line break
  std::erase_if(parts.front, [](const std::string& line) { return line.ends_with(kAdded); });
  for (std::string& line : parts.front)
    if (line.starts_with(kReplaced)) line.erase(0, kReplaced.size());
  return joined(parts);
}

}  // namespace octavo
