// One pass over the expression. What both engines read alike is copied; what they do not is written
// in other words; what is neither is refused by name.
#include <cstdint>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json/json_text_internal.h"
#include "octavo/model/tokenizer/expression_internal.h"
#include "octavo/model/tokenizer/expression_properties_internal.h"
#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::size_t kMaxDepth = 100;
constexpr std::uint32_t kMaxRepeats = 65535;  // PCRE2's
constexpr std::size_t kNothing = std::string::npos;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    // Later it means other things to the two engines.
    if (starts_with("(?i)")) {
      at_ += 4;
      out_ = "(?i)";
      caseless_ = true;
    }
    while (at_ < pattern_.size()) element();
    if (!groups_.empty()) refuse("a group that is not closed");
    return std::move(out_);
  }

 private:
  struct Group {
    std::size_t begin;  // in out_
    bool caseless;      // outside
  };

  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::unsupported, "tokenizer", "got ", what, " at byte ", at_,
         " of the regular expression '", shown(pattern_),
         "'; expected what tokenizers of known models use");
  }
  [[nodiscard]] bool starts_with(std::string_view text) const {
    return pattern_.substr(at_).starts_with(text);
  }
  bool take(std::string_view text) {
    if (!starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  void literal(std::uint32_t point) { out_ += text_of(point); }
  static std::string text_of(std::uint32_t point) {
    std::string out;
    const bool plain = point >= 0x80 || is_digit(static_cast<char>(point)) ||
                       is_ascii_letter(static_cast<char>(point)) || point == ' ';
    if (point < 0x20 || point == 0x7F) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out = {'\\', 'x', '{', kDigits[point >> 4], kDigits[point & 15], '}'};
    } else {
      if (!plain) out += '\\';
      append_utf8(out, point);
    }
    return out;
  }

  void element() {
    const char c = pattern_[at_];
    if (c == '(') return open_group();
    if (c == ')') return close_group();
    if (c == '|') {
      ++at_;
      out_ += '|';
      atom_ = kNothing;
      return;
    }
    if (c == '?' || c == '*' || c == '+') {
      ++at_;
      // A lazy or possessive suffix belongs to these, not to an interval.
      std::string quantifier(1, c);
      if (take("?")) {
        quantifier += '?';
      } else if (take("+")) {
        quantifier += '+';
      }
      return repeat(quantifier);
    }
    if (c == '{' && interval()) return;
    if (c == '^' || c == '$') {
      ++at_;
      out_ += c;
      atom_ = kNothing;
      return;
    }
    begin_atom();
    if (c == '[') {
      out_ += character_class();
    } else if (c == '\\') {
      escape();
    } else if (c == '.') {
      ++at_;
      out_ += '.';
    } else {
      literal(next_point(pattern_, at_));
    }
  }

  void begin_atom() {
    atom_ = out_.size();
    repeated_ = false;
  }

  void repeat(std::string_view quantifier) {
    if (atom_ == kNothing) refuse("a repetition of nothing");
    if (repeated_) {  // x{2}+ repeats x{2}; in PCRE2 it would be possessive
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    out_ += quantifier;
    repeated_ = true;
  }

  // {n}, {n,}, {n,m}, {,m}; false where the brace is a character.
  bool interval() {
    std::size_t end = at_ + 1;
    const auto number = [&](bool& any) {
      std::uint32_t value = 0;
      any = false;
      for (; end < pattern_.size() && is_digit(pattern_[end]); ++end) {
        any = true;
        value =
            std::min(value * 10 + static_cast<std::uint32_t>(pattern_[end] - '0'), kMaxRepeats + 1);
      }
      return value;
    };
    bool has_least = false, has_most = false;
    const std::uint32_t least = number(has_least);
    const bool comma = end < pattern_.size() && pattern_[end] == ',';
    if (comma) ++end;
    const std::uint32_t most = comma ? number(has_most) : least;
    if (end >= pattern_.size() || pattern_[end] != '}' || (!has_least && !has_most)) return false;
    if (least > kMaxRepeats || most > kMaxRepeats || (has_most && most < least))
      refuse("a number of repetitions");
    at_ = end + 1;
    std::string quantifier = text("{", least);
    if (comma) quantifier += has_most ? text(",", most) : ",";
    quantifier += '}';
    const bool fixed = !comma || (has_most && most == least);
    if (!fixed && take("?")) quantifier += '?';  // x{2}? is an optional x{2}
    repeat(quantifier);
    return true;
  }

  void open_group() {
    if (groups_.size() >= kMaxDepth) refuse("groups nested this deep");
    const Group group{out_.size(), caseless_};
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
      if (take(kind)) {
        if (kind == "(?i:") caseless_ = true;
        out_ += kind;
        groups_.push_back(group);
        atom_ = kNothing;
        return;
      }
    if (starts_with("(?") || starts_with("(*")) refuse("a group of this kind");
    ++at_;
    out_ += "(?:";  // nothing refers to it
    groups_.push_back(group);
    atom_ = kNothing;
  }

  void close_group() {
    if (groups_.empty()) refuse("a ')' without its '('");
    ++at_;
    out_ += ')';
    atom_ = groups_.back().begin;
    caseless_ = groups_.back().caseless;
    repeated_ = false;
    groups_.pop_back();
  }

  void add_set(const CharacterSet& set, bool negated) {
    out_ += negated ? "[^" : "[";
    out_ += set.items;
    out_ += ']';
  }

  // At a backslash, outside of a class.
  void escape() {
    CharacterSet set;
    bool negated = false;
    if (named_set(set, negated)) return add_set(set, negated);
    const std::string_view rest = pattern_.substr(at_);
    const std::string& word = word_set().items;
    for (const auto& [from, to] : {std::pair{"\\A", "\\A"}, {"\\z", "\\z"}, {"\\Z", "\\Z"}})
      if (rest.starts_with(from)) {
        at_ += 2;
        out_ += to;
        atom_ = kNothing;
        return;
      }
    if (rest.starts_with("\\b") || rest.starts_with("\\B")) {
      const bool inside = rest[1] == 'B';
      at_ += 2;
      const std::string before = text("(?<=[", word, "])"), after = text("(?=[", word, "])");
      const std::string not_before = text("(?<![", word, "])"),
                        not_after = text("(?![", word, "])");
      out_ += inside ? text("(?:", before, after, "|", not_before, not_after, ")")
                     : text("(?:", before, not_after, "|", not_before, after, ")");
      atom_ = kNothing;
      return;
    }
    literal(escaped_point());
  }

  // \s \S \w \W \d \D \h \H \p{} \P{} \p{^}; false for any other escape.
  bool named_set(CharacterSet& set, bool& negated) {
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (kind) {
      case 's':
      case 'S':
        set = white_space_set();
        break;
      case 'w':
      case 'W':
        set = word_set();
        break;
      case 'd':
      case 'D':
        set = property_set("Nd", false);
        break;
      case 'h':
      case 'H':
        set = hex_digit_set();
        break;
      case 'p':
      case 'P': {
        const std::size_t end = pattern_.find('}', at_);
        if (pattern_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos)
          refuse("a property without braces");
        std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
        negated = kind == 'P';
        if (name.starts_with('^')) {
          negated = !negated;
          name.remove_prefix(1);
        }
        set = property_set(name, caseless_);
        at_ = end + 1;
        return true;
      }
      default:
        return false;
    }
    negated = kind >= 'A' && kind <= 'Z';
    at_ += 2;
    return true;
  }

  // The character of an escape.
  std::uint32_t escaped_point() {
    ++at_;
    if (at_ >= pattern_.size()) refuse("a backslash at the end");
    const char c = pattern_[at_];
    if (c == 'x' || c == 'u') return hexadecimal(c);
    constexpr std::string_view kLetters = "tnrfvae", kMeanings = "\t\n\r\f\v\a\x1B";
    if (const std::size_t i = kLetters.find(c); i != std::string_view::npos) {
      ++at_;
      return static_cast<std::uint32_t>(kMeanings[i]);
    }
    if (is_ascii_letter(c) || is_digit(c)) refuse("an escape of this kind");
    return next_point(pattern_, at_);
  }

  std::uint32_t hexadecimal(char kind) {
    ++at_;
    const bool braces = kind == 'x' && take("{");
    const std::size_t most = braces ? 8 : kind == 'x' ? 2 : 4;
    std::uint32_t value = 0;
    std::size_t digits = 0;
    for (; digits < most && at_ < pattern_.size(); ++digits, ++at_) {
      const char c = pattern_[at_];
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (digits == 0 || (kind == 'u' && digits != 4) || (braces && !take("}")) || value > 0x10FFFF ||
        surrogate || (kind == 'x' && !braces && value >= 0x80))
      refuse("a hexadecimal character");
    return value;
  }

  // At '['. A class inside of a class is united with it.
  std::string character_class(std::size_t depth = 0) {
    if (depth >= kMaxDepth) refuse("classes nested this deep");
    ++at_;
    const bool negated = take("^");
    if (negated && depth > 0) refuse("a negated class inside of a class");
    std::string items;
    for (bool first = true;; first = false) {
      if (at_ >= pattern_.size()) refuse("a class that is not closed");
      if (!first && take("]")) break;
      if (starts_with("&&")) refuse("an intersection of classes");
      if (starts_with("[:")) {
        posix(items);
      } else if (pattern_[at_] == '[') {
        items += character_class(depth + 1);
      } else {
        member(items);
      }
    }
    if (depth > 0) return items;
    return (negated ? "[^" : "[") + items + "]";
  }

  void posix(std::string& items) {
    const std::size_t end = pattern_.find(":]", at_);
    if (end == std::string_view::npos) refuse("a class that is not closed");
    const std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    if (name != "alpha" && name != "digit" && name != "space" && name != "punct" && name != "word")
      refuse("a class of POSIX that octavo does not know");
    items += property_set(name, caseless_).items;
    at_ = end + 2;
  }

  // A set, a character or a range.
  void member(std::string& items) {
    CharacterSet set;
    bool negated = false;
    if (pattern_[at_] == '\\' && named_set(set, negated)) {
      if (negated && set.complement.empty()) refuse("a negated set in a class");
      items += negated ? set.complement : set.items;
      return;
    }
    const auto point = [&] {
      return pattern_[at_] == '\\' ? escaped_point() : next_point(pattern_, at_);
    };
    const std::uint32_t begin = point();
    items += text_of(begin);
    const std::string_view rest = pattern_.substr(at_);
    if (rest.size() < 2 || rest[0] != '-' || rest[1] == ']') return;
    if (rest[1] == '[') refuse("a range to a class");
    ++at_;
    if (rest[1] == '\\') {
      CharacterSet unused;
      const std::size_t before = at_;
      if (named_set(unused, negated)) {  // "a-\s" is three members
        at_ = before;
        items += "\\-";
        return;
      }
    }
    const std::uint32_t end = point();
    if (end < begin) refuse("a range that runs backwards");
    items += '-';
    items += text_of(end);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  std::size_t atom_ = kNothing;  // where in out_ what a quantifier repeats begins
  bool repeated_ = false;        // it has a quantifier
  bool caseless_ = false;
};

}  // namespace

std::string pcre2_syntax(std::string_view oniguruma) { return Translation(oniguruma).run(); }

}  // namespace octavo::tokenizer
