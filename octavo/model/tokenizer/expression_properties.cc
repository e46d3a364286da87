#include "octavo/model/tokenizer/expression_properties_internal.h"

#include <algorithm>
#include <array>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/model/tokenizer/expression_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::array<std::string_view, 38> kCategories{
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "Any"};

// Oniguruma's long names, of POSIX too.
constexpr std::array<std::pair<std::string_view, std::string_view>, 34> kLongNames{
    {{"letter", "L"},
     {"lowercaseletter", "Ll"},
     {"uppercaseletter", "Lu"},
     {"titlecaseletter", "Lt"},
     {"modifierletter", "Lm"},
     {"otherletter", "Lo"},
     {"mark", "M"},
     {"nonspacingmark", "Mn"},
     {"spacingmark", "Mc"},
     {"enclosingmark", "Me"},
     {"number", "N"},
     {"decimalnumber", "Nd"},
     {"letternumber", "Nl"},
     {"othernumber", "No"},
     {"punctuation", "P"},
     {"connectorpunctuation", "Pc"},
     {"dashpunctuation", "Pd"},
     {"openpunctuation", "Ps"},
     {"closepunctuation", "Pe"},
     {"initialpunctuation", "Pi"},
     {"finalpunctuation", "Pf"},
     {"otherpunctuation", "Po"},
     {"symbol", "S"},
     {"mathsymbol", "Sm"},
     {"currencysymbol", "Sc"},
     {"modifiersymbol", "Sk"},
     {"othersymbol", "So"},
     {"separator", "Z"},
     {"spaceseparator", "Zs"},
     {"other", "C"},
     {"control", "Cc"},
     {"format", "Cf"},
     {"unassigned", "Cn"},
     {"digit", "Nd"}}};

// Names compare without case, spaces, '_' and '-'.
std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-')
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

CharacterSet of_property(std::string_view name) {
  return {text("\\p{", name, "}"), text("\\P{", name, "}")};
}

bool compiles(std::string_view pattern) {
  try {
    (void)Expression::from_pcre2(pattern);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const CharacterSet& white_space_set() {
  // PCRE2's own \s has U+180E too.
  static const CharacterSet set{
      R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})",
      R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
      R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})"};
  return set;
}

const CharacterSet& word_set() {
  // Oniguruma has these six numbers among letters; PCRE2's \w has no marks.
  static const CharacterSet set{R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})",
                                ""};
  return set;
}

const CharacterSet& hex_digit_set() {
  static const CharacterSet set{"0-9A-Fa-f", R"(\x{0}-/:-@G-`g-\x{10ffff})"};
  return set;
}

CharacterSet property_set(std::string_view name, bool caseless) {
  const std::string wanted = plain(name);
  for (const auto& [long_name, category] : kLongNames)
    if (wanted == long_name) return property_set(category, caseless);
  for (const std::string_view category : kCategories)
    if (wanted == plain(category)) {
      const bool cased = category == "Lu" || category == "Ll" || category == "Lt";
      check(!cased || !caseless, ErrorCode::unsupported, "tokenizer", "got \\p{", category,
            "} in a part of a regular expression that ignores case; expected none there");
      return of_property(category);
    }
  if (wanted == "alpha") return of_property("Alphabetic");
  if (wanted == "space") return white_space_set();
  if (wanted == "word") return word_set();
  if (wanted == "punct") return {R"(\p{P}\p{S})", ""};
  const bool sound = !wanted.empty() && std::all_of(wanted.begin(), wanted.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
  // Of a script PCRE2 takes the characters that are used with it, unless told otherwise.
  for (const std::string& property : {"sc:" + wanted, wanted})
    if (sound && compiles(text("\\p{", property, "}"))) return of_property(property);
  fail(ErrorCode::unsupported, "tokenizer", "got a regular expression with the property \\p{",
       shown(name), "}; expected one that PCRE2 knows");
}

}  // namespace octavo::tokenizer
