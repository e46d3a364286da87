// Pre-tokenizers of tokenizer.json: which regular expression (regex) or rule cuts text into words.
#include "octavo/model/tokenizer/pre_tokenizer_internal.h"

#include <algorithm>
#include <utility>

#include "octavo/model/tokenizer/byte_characters_internal.h"
#include "octavo/model/tokenizer/normal_form_internal.h"
#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Rust's \w, which is not Oniguruma's.
constexpr std::string_view kWhitespaceWords =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\x{9}-\x{d}\x{85}\p{Z}]+)";

}  // namespace

PrependScheme parse_prepend_scheme(const Part& metaspace) {
  const Part part = metaspace["prepend_scheme"];
  const std::string_view name = part.absent() ? "always" : part.string();
  const PrependScheme scheme = name == "always"  ? PrependScheme::always
                               : name == "first" ? PrependScheme::first
                               : name == "never"
                                   ? PrependScheme::never
                                   : (part.wrong("always, first or never"), PrependScheme::never);
  // The older name of the choice.
  if (metaspace["add_prefix_space"].boolean_or(true)) return scheme;
  if (!part.absent() && scheme != PrependScheme::never)
    metaspace["add_prefix_space"].wrong("what prepend_scheme says");
  return PrependScheme::never;
}

std::string metaspace_replacement(const Part& metaspace) {
  const Part part = metaspace["replacement"];
  const std::string_view name = part.string();
  if (name.empty() || character_bytes(name[0]) != name.size()) part.wrong("one character");
  return std::string(name);
}

PreTokenizer::PreTokenizer(const Part& part) {
  each_of_sequence(part, "pretokenizers", [&](const Part& one) { add(one); });
  check_steps(steps_.size(), "pre-tokenizers");
  if (steps_.empty()) return;
  // Each would write the bytes of what the one before has written: twice as many.
  const auto writers = std::ranges::count_if(
      steps_, [](const Step& step) { return std::holds_alternative<WriteBytes>(step); });
  check(writers <= 1, ErrorCode::unsupported, "tokenizer", "got ", writers,
        " pre-tokenizers of the kind 'ByteLevel'; expected one at most");
  gives_bytes_ = std::holds_alternative<WriteBytes>(steps_.back());
  if (gives_bytes_) steps_.pop_back();
}

void PreTokenizer::add(const Part& part) {
  const std::string_view type = part.type();
  if (type == "ByteLevel") {
    if (part["add_prefix_space"].boolean()) steps_.emplace_back(PrefixSpace{});
    if (part["use_regex"].boolean_or(true))
      steps_.emplace_back(Split{Pattern(Expression(kGpt2Words)), SplitBehavior::isolated, false});
    steps_.emplace_back(WriteBytes{});
  } else if (type == "Split") {
    steps_.emplace_back(Split{Pattern(part["pattern"]), parse_split_behavior(part["behavior"]),
                              part["invert"].boolean()});
  } else if (type == "Digits") {
    steps_.emplace_back(ByKind{is_numeric, part["individual_digits"].boolean()
                                               ? SplitBehavior::isolated
                                               : SplitBehavior::contiguous});
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(
        ByKind{[](std::uint32_t point) { return is_white_space(point); }, SplitBehavior::removed});
  } else if (type == "Whitespace") {
    steps_.emplace_back(
        Split{Pattern(Expression::from_pcre2(kWhitespaceWords)), SplitBehavior::removed, true});
  } else if (type == "Metaspace") {
    steps_.emplace_back(Metaspace{metaspace_replacement(part), parse_prepend_scheme(part),
                                  part["split"].boolean_or(true)});
  } else {
    part.unknown("a pre-tokenizer of the kind",
                 "ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Sequence");
  }
}

void PreTokenizer::cut(std::string_view text, bool first, MatchMemory& memory,
                       WordSink& sink) const {
  run({text, first, 0}, memory, sink);
}

// Depth first: a word goes through all steps before the next is cut off, so that memory does not
// grow with their number.
void PreTokenizer::run(const Text& text, MatchMemory& memory, WordSink& sink) const {
  if (text.text.empty()) return;
  if (text.step == steps_.size()) return sink.take(text.text);
  const Text next{text.text, text.first, text.step + 1};
  std::visit([&](const auto& step) { apply(step, next, memory, sink); }, steps_[text.step]);
}

void PreTokenizer::apply(const PrefixSpace&, const Text& text, MatchMemory& memory,
                         WordSink& sink) const {
  if (text.text.starts_with(' ')) return run(text, memory, sink);
  const std::string longer = " " + std::string(text.text);
  run({longer, text.first, text.step}, memory, sink);
}

void PreTokenizer::apply(const WriteBytes&, const Text& text, MatchMemory& memory,
                         WordSink& sink) const {
  const std::string written = to_byte_characters(text.text);
  run({written, text.first, text.step}, memory, sink);
}

void PreTokenizer::apply(const Split& step, const Text& text, MatchMemory& memory,
                         WordSink& sink) const {
  // Without merging, words go on as they are found: a long text has many.
  const bool streams =
      step.behavior == SplitBehavior::isolated || step.behavior == SplitBehavior::removed;
  std::vector<Cut> cuts;
  const auto cut = [&](std::size_t begin, std::size_t end, bool match) {
    if (!streams) {
      cuts.push_back({begin, end, match});
    } else if (step.behavior == SplitBehavior::isolated || !match) {
      run({text.text.substr(begin, end - begin), text.first && begin == 0, text.step}, memory,
          sink);
    }
  };
  std::size_t done = 0;
  step.pattern.each(text.text, memory, [&](std::size_t begin, std::size_t end) {
    if (done < begin) cut(done, begin, step.invert);
    cut(begin, end, !step.invert);
    done = end;
  });
  if (done < text.text.size()) cut(done, text.text.size(), step.invert);
  if (!streams) run_cuts(text, std::move(cuts), step.behavior, memory, sink);
}

void PreTokenizer::apply(const ByKind& step, const Text& text, MatchMemory& memory,
                         WordSink& sink) const {
  std::vector<Cut> cuts;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.text.size();) {
    const std::size_t begin = at;
    if (!step.is(next_point(text.text, at))) continue;
    if (done < begin) cuts.push_back({done, begin, false});
    cuts.push_back({begin, at, true});
    done = at;
  }
  if (done < text.text.size()) cuts.push_back({done, text.text.size(), false});
  run_cuts(text, std::move(cuts), step.behavior, memory, sink);
}

void PreTokenizer::apply(const Metaspace& step, const Text& text, MatchMemory& memory,
                         WordSink& sink) const {
  std::string written;
  written.reserve(text.text.size() + text.text.size() / 2);
  for (const char c : text.text) {
    if (c == ' ') {
      written += step.replacement;
    } else {
      written += c;
    }
  }
  const bool prepends =
      step.scheme == PrependScheme::always || (step.scheme == PrependScheme::first && text.first);
  if (prepends && !written.starts_with(step.replacement)) written.insert(0, step.replacement);
  const Text next{written, text.first, text.step};
  if (!step.splits) return run(next, memory, sink);
  // A word begins with each replacement.
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(written.find(step.replacement, begin + 1), written.size());
    run({std::string_view(written).substr(begin, end - begin), text.first && begin == 0, text.step},
        memory, sink);
    begin = end;
  } while (begin < written.size());
}

void PreTokenizer::run_cuts(const Text& text, std::vector<Cut> cuts, SplitBehavior behavior,
                            MatchMemory& memory, WordSink& sink) const {
  for (const Cut& cut : apply_behavior(std::move(cuts), behavior))
    run({text.text.substr(cut.begin, cut.end - cut.begin), text.first && cut.begin == 0, text.step},
        memory, sink);
}

}  // namespace octavo::tokenizer
