// Expressions, by recursive descent: alternatives of sequences of repeated atoms.
#include "octavo/base/error.h"
#include "octavo/base/pattern/pattern_parser_internal.h"
#include "octavo/base/pattern/pattern_text_internal.h"

namespace octavo {
namespace {

using Kind = PatternNode::Kind;
using Characters = Pattern::Characters;

constexpr int kMaxDepth = 100;
constexpr std::uint32_t kMaxRepeats = 1000;

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void add_range(Characters& into, std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t c = first; c <= last; ++c) into.ascii.set(c);
}

Characters opposite_of(const Characters& set) { return {~set.ascii, !set.others}; }

PatternNode literal(std::uint32_t character) {
  return {.kind = Kind::character, .character = character};
}
PatternNode any_of(const Characters& set) { return {.kind = Kind::characters, .characters = set}; }
PatternNode assertion(Pattern::Kind kind) { return {.kind = Kind::assertion, .assertion = kind}; }

// \d, \w, \s and their opposites.
bool class_of(char letter, Characters& out) {
  out = {};
  switch (letter) {
    case 'd':
    case 'D':
      add_range(out, '0', '9');
      break;
    case 'w':
    case 'W':
      add_range(out, '0', '9');
      add_range(out, 'a', 'z');
      add_range(out, 'A', 'Z');
      out.ascii.set('_');
      out.others = true;
      break;
    case 's':
    case 'S':
      add_range(out, '\t', '\r');
      add_range(out, 0x1C, ' ');  // Python counts separators of files and records
      break;
    default:
      return false;
  }
  if (letter < 'a') out = opposite_of(out);
  return true;
}

class Parser {
 public:
  explicit Parser(std::string_view expression) : all_(expression), rest_(expression) {}

  PatternTree run() {
    PatternNode node = alternatives(0);
    if (!rest_.empty()) refuse("')' without '('");
    return {std::move(aheads_), std::move(node)};
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::invalid_argument, "pattern", "'", shown(all_),
         "' is no regular expression that octavo takes: ", what, " at character ",
         all_.size() - rest_.size() + 1);
  }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::uint32_t next() {
    const PatternCharacter c = character_at(rest_, 0);
    rest_.remove_prefix(c.bytes);
    return c.value;
  }

  PatternNode alternatives(int depth) {
    if (depth > kMaxDepth) refuse("too many groups in one another");
    PatternNode node{.kind = Kind::either};
    do {
      node.parts.push_back(sequence(depth));
    } while (take('|'));
    return node.parts.size() == 1 ? std::move(node.parts.front()) : node;
  }

  PatternNode sequence(int depth) {
    PatternNode node{.kind = Kind::sequence};
    while (!rest_.empty() && rest_.front() != '|' && rest_.front() != ')') {
      PatternNode atom = this->atom(depth);
      const bool could_repeat = atom.kind != Kind::assertion;
      node.parts.push_back(could_repeat ? repeated(std::move(atom)) : std::move(atom));
    }
    return node;
  }

  PatternNode atom(int depth) {
    if (take('(')) return group(depth);
    if (take('[')) return any_of(bracket());
    if (take('^')) return assertion(Pattern::Kind::begin);
    if (take('$')) return assertion(Pattern::Kind::end);
    if (take('.')) return any_of({~std::bitset<128>().set('\n'), true});
    if (take('\\')) {
      if (take('b')) return assertion(Pattern::Kind::boundary);
      if (take('B')) return assertion(Pattern::Kind::no_boundary);
      Characters set;
      if (rest_.empty() || !class_of(rest_.front(), set)) return literal(escaped());
      rest_.remove_prefix(1);
      return any_of(set);
    }
    if (rest_.front() == '{') refuse("'{' that repeats nothing; write \\{ for the character");
    if (std::string_view("*+?").find(rest_.front()) != std::string_view::npos)
      refuse("a repetition of nothing");
    return literal(next());
  }

  PatternNode group(int depth) {
    PatternNode ahead = assertion(Pattern::Kind::ahead);
    const bool is_ahead = rest_.starts_with("?=") || rest_.starts_with("?!");
    if (rest_.starts_with("?!")) ahead.assertion = Pattern::Kind::not_ahead;
    if (!is_ahead && rest_.starts_with('?') && !rest_.starts_with("?:"))
      refuse("'(?': of these only '(?:', '(?=' and '(?!' are supported");
    if (rest_.starts_with('?')) rest_.remove_prefix(2);
    PatternNode node = alternatives(depth + 1);
    if (!take(')')) refuse("'(' without ')'");
    if (!is_ahead) return node;
    ahead.ahead = static_cast<std::uint32_t>(aheads_.size());
    aheads_.push_back(std::move(node));
    return ahead;
  }

  PatternNode repeated(PatternNode atom) {
    std::uint32_t least = 0, most = kPatternNoLimit;
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (take('{')) {
      least = number();
      most = !take(',') ? least : rest_.starts_with('}') ? kPatternNoLimit : number();
      if (!take('}')) refuse("'{' without '}'");
      if (most < least) refuse("a repetition of at most fewer than at least");
    } else {
      return atom;
    }
    take('?');  // as few as possible: found or not is the same
    if (!rest_.empty() && std::string_view("*+?{").find(rest_.front()) != std::string_view::npos)
      refuse("a repetition of a repetition; put the first in ( )");
    PatternNode node{.kind = Kind::repeat, .least = least, .most = most};
    node.parts.push_back(std::move(atom));
    return node;
  }

  std::uint32_t number() {
    if (rest_.empty() || !is_digit(rest_.front())) refuse("a number is missing");
    std::uint32_t value = 0;
    while (!rest_.empty() && is_digit(rest_.front())) {
      value = value * 10 + (next() - '0');
      if (value > kMaxRepeats) refuse("more than 1000 repetitions");
    }
    return value;
  }

  // What is behind a backslash and no class.
  std::uint32_t escaped() {
    constexpr std::string_view kLetters = "tnrfv", kMeant = "\t\n\r\f\v";
    if (rest_.empty()) refuse("'\\' at the end");
    if (const std::size_t at = kLetters.find(rest_.front()); at != std::string_view::npos) {
      rest_.remove_prefix(1);
      return static_cast<std::uint32_t>(kMeant[at]);
    }
    if (take('x')) {
      const std::uint32_t high = hex_digit();
      return high * 16 + hex_digit();
    }
    if (is_digit(rest_.front())) refuse("'\\' before a digit: what a group found is not kept");
    if (is_letter(rest_.front())) refuse("'\\' before a letter that means nothing there");
    return next();
  }
  std::uint32_t hex_digit() {
    const char c = rest_.empty() ? '\0' : rest_.front();
    if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
      refuse("\\x wants two hexadecimal digits");
    rest_.remove_prefix(1);
    return static_cast<std::uint32_t>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
  }

  Characters bracket() {
    const bool opposite = take('^');
    Characters out;
    if (rest_.starts_with(']')) refuse("an empty '[]'; write \\] for the character");
    while (!rest_.starts_with(']')) {
      if (rest_.empty()) refuse("'[' without ']'");
      if (rest_.starts_with("[:") || rest_.starts_with("[.") || rest_.starts_with("[="))
        refuse("a class with a name; write \\d, \\w or \\s, or \\[");
      if (take_class(out)) {
        if (is_range()) refuse("a range that begins with a class");
        continue;
      }
      const std::uint32_t first = bracket_character();
      std::uint32_t last = first;
      if (is_range()) {
        rest_.remove_prefix(1);
        if (take_class(out)) refuse("a range that ends in a class");
        last = bracket_character();
      }
      if (last < first) refuse("a range that ends before it begins");
      add_range(out, first, last);
    }
    rest_.remove_prefix(1);
    return opposite ? opposite_of(out) : out;
  }
  [[nodiscard]] bool is_range() const {
    return rest_.size() > 1 && rest_.front() == '-' && rest_[1] != ']';
  }
  bool take_class(Characters& into) {
    Characters set;
    if (rest_.size() < 2 || rest_.front() != '\\' || !class_of(rest_[1], set)) return false;
    rest_.remove_prefix(2);
    into.ascii |= set.ascii;
    into.others |= set.others;
    return true;
  }
  std::uint32_t bracket_character() {
    const std::uint32_t c = !take('\\') ? next() : take('b') ? '\b' : escaped();
    if (c >= 0x80) refuse("a character beyond ASCII in '[]'; write (a|b)");
    return c;
  }

  std::string_view all_, rest_;
  std::vector<PatternNode> aheads_;
};

}  // namespace

PatternTree parse_pattern(std::string_view expression) { return Parser(expression).run(); }

}  // namespace octavo
