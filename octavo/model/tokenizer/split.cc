#include "octavo/model/tokenizer/split_internal.h"

#include <algorithm>

#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {

Pattern::Pattern(const Part& part) {
  if (const Part text = part["String"]; !text.absent()) {
    text_ = text.string();
    return;
  }
  expression_.emplace(part["Regex"].string());
}

Pattern Pattern::of_text(std::string_view text) {
  Pattern out;
  out.text_ = text;
  return out;
}

std::string_view Pattern::subject_of(std::string_view text, std::string& storage) const {
  return expression_ ? with_stand_ins(text, storage) : text;
}

bool Pattern::search(std::string_view subject, std::size_t from, MatchMemory& memory,
                     Match& match) const {
  if (expression_) return expression_->search(subject, from, memory, match);
  const std::size_t at = subject.find(text_, from);
  match = {at, at + text_.size()};
  return at != std::string_view::npos;
}

std::size_t Pattern::bytes_at(std::string_view text, std::size_t at) {
  return character_bytes(text[at]);
}

SplitBehavior parse_split_behavior(const Part& part) {
  const std::string_view name = part.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  part.wrong("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

std::vector<Cut> apply_behavior(std::vector<Cut> cuts, SplitBehavior behavior) {
  if (behavior == SplitBehavior::isolated) return cuts;
  if (behavior == SplitBehavior::removed) {
    std::erase_if(cuts, [](const Cut& cut) { return cut.match; });
    return cuts;
  }
  // Merging with what follows is merging with what comes before, seen from the end.
  const bool backwards = behavior == SplitBehavior::merged_with_next;
  if (backwards) std::reverse(cuts.begin(), cuts.end());
  std::vector<Cut> out;
  bool before = false;  // whether the part before was a match
  for (const Cut& cut : cuts) {
    const bool joins =
        behavior == SplitBehavior::contiguous ? cut.match == before : cut.match && !before;
    before = cut.match;
    if (joins && !out.empty()) {
      (backwards ? out.back().begin : out.back().end) = backwards ? cut.begin : cut.end;
    } else {
      out.push_back(cut);
    }
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace octavo::tokenizer
