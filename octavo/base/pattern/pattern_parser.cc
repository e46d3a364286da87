// Expressions, by recursive descent: alternatives of sequences of repeated atoms.
#include "octavo/base/error.h"
#include "octavo/base/pattern/pattern_parser_internal.h"

namespace octavo {
namespace {

using Kind = PatternNode::Kind;
using Bytes = Pattern::Bytes;

constexpr int kMostDepth = 100;
constexpr std::uint32_t kMostRepeats = 1000;

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void add_range(Bytes& into, unsigned char first, unsigned char last) {
  for (unsigned c = first; c <= last; ++c) into.set(c);
}

Bytes one(char c) { return Bytes().set(static_cast<unsigned char>(c)); }

// \d, \w, \s and their opposites.
bool class_of(char letter, Bytes& out) {
  out.reset();
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
      out.set('_');
      break;
    case 's':
    case 'S':
      for (const char c : std::string_view(" \t\n\r\f\v")) out.set(static_cast<unsigned char>(c));
      break;
    default:
      return false;
  }
  if (letter < 'a') out.flip();
  return true;
}

class Parser {
 public:
  explicit Parser(std::string_view expression) : all_(expression), rest_(expression) {}

  PatternNode run() {
    PatternNode node = alternatives(0);
    if (!rest_.empty()) refuse("')' without '('");
    return node;
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
  char next() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  PatternNode alternatives(int depth) {
    if (depth > kMostDepth) refuse("too many groups in one another");
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
    if (take('[')) return {.kind = Kind::bytes, .bytes = bracket()};
    if (take('^')) return {.kind = Kind::assertion, .assertion = Pattern::Kind::begin};
    if (take('$')) return {.kind = Kind::assertion, .assertion = Pattern::Kind::end};
    if (take('.')) return {.kind = Kind::bytes, .bytes = ~(one('\n') | one('\r'))};
    if (take('\\')) {
      if (take('b')) return {.kind = Kind::assertion, .assertion = Pattern::Kind::boundary};
      if (take('B')) return {.kind = Kind::assertion, .assertion = Pattern::Kind::no_boundary};
      return {.kind = Kind::bytes, .bytes = escaped()};
    }
    if (rest_.front() == '{') refuse("'{' that repeats nothing; write \\{ for the character");
    if (std::string_view("*+?").find(rest_.front()) != std::string_view::npos)
      refuse("a repetition of nothing");
    return {.kind = Kind::bytes, .bytes = one(next())};
  }

  PatternNode group(int depth) {
    if (rest_.starts_with('?') && !rest_.starts_with("?:"))
      refuse(
          "'(?': of these only '(?:' is supported, not look-ahead, look-behind, named groups or "
          "flags");
    if (take('?')) take(':');
    PatternNode node = alternatives(depth + 1);
    if (!take(')')) refuse("'(' without ')'");
    return node;
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
      value = value * 10 + static_cast<std::uint32_t>(next() - '0');
      if (value > kMostRepeats) refuse("more than 1000 repetitions");
    }
    return value;
  }

  Bytes escaped() {
    if (rest_.empty()) refuse("'\\' at the end");
    Bytes bytes;
    if (class_of(rest_.front(), bytes)) {
      rest_.remove_prefix(1);
      return bytes;
    }
    return one(escaped_byte());
  }

  char escaped_byte() {
    constexpr std::string_view kLetters = "tnrfv", kMeant = "\t\n\r\f\v";
    if (rest_.empty()) refuse("'\\' at the end");
    if (const std::size_t at = kLetters.find(rest_.front()); at != std::string_view::npos) {
      rest_.remove_prefix(1);
      return kMeant[at];
    }
    if (rest_.front() == 'x') {
      rest_.remove_prefix(1);
      const int high = hex_digit();
      return static_cast<char>(high * 16 + hex_digit());
    }
    if (is_digit(rest_.front())) refuse("'\\' before a digit: what a group found is not kept");
    if (is_letter(rest_.front())) refuse("'\\' before a letter that means nothing there");
    return next();
  }
  int hex_digit() {
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (rest_.empty()) refuse("\\x wants two hexadecimal digits");
    const char c = rest_.front();
    const std::size_t at =
        kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
    if (at == std::string_view::npos) refuse("\\x wants two hexadecimal digits");
    rest_.remove_prefix(1);
    return static_cast<int>(at);
  }

  Bytes bracket() {
    const bool opposite = take('^');
    Bytes out;
    if (rest_.starts_with(']')) refuse("an empty '[]'; write \\] for the character");
    while (!rest_.starts_with(']')) {
      if (rest_.empty()) refuse("'[' without ']'");
      if (rest_.starts_with("[:") || rest_.starts_with("[.") || rest_.starts_with("[="))
        refuse("a class with a name; write \\d, \\w or \\s, or \\[");
      Bytes bytes;
      if (rest_.size() > 1 && rest_.front() == '\\' && class_of(rest_[1], bytes)) {
        rest_.remove_prefix(2);
        out |= bytes;
        continue;
      }
      const char first = bracket_byte();
      if (rest_.size() < 2 || rest_.front() != '-' || rest_[1] == ']') {
        out |= one(first);
        continue;
      }
      rest_.remove_prefix(1);
      if (rest_.size() > 1 && rest_.front() == '\\' && class_of(rest_[1], bytes))
        refuse("a range that ends in a class");
      const char last = bracket_byte();
      if (static_cast<unsigned char>(last) < static_cast<unsigned char>(first))
        refuse("a range that ends before it begins");
      add_range(out, static_cast<unsigned char>(first), static_cast<unsigned char>(last));
    }
    rest_.remove_prefix(1);
    return opposite ? ~out : out;
  }
  char bracket_byte() {
    if (!take('\\')) return next();
    if (take('b')) return '\b';
    return escaped_byte();
  }

  std::string_view all_, rest_;
};

}  // namespace

PatternNode parse_pattern(std::string_view expression) { return Parser(expression).run(); }

}  // namespace octavo
