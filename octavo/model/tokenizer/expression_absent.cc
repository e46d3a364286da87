// What stands in for expression.cc where PCRE2 was missing when octavo was built: no expression can
// be made.
#include "octavo/base/error.h"
#include "octavo/model/tokenizer/expression_internal.h"

namespace octavo::tokenizer {

struct MatchMemory::Parts {};
MatchMemory::MatchMemory() = default;
MatchMemory::~MatchMemory() = default;
MatchMemory::MatchMemory(MatchMemory&&) noexcept = default;
MatchMemory& MatchMemory::operator=(MatchMemory&&) noexcept = default;

struct Expression::Code {};
Expression::Expression(std::string_view oniguruma) : Expression(oniguruma, {}) {}
Expression Expression::from_pcre2(std::string_view pattern) { return {pattern, {}}; }
Expression::~Expression() = default;
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::Expression(std::string_view pattern, std::string) {
  fail(ErrorCode::unsupported, "tokenizer", "got the regular expression '", shown(pattern),
       "', and octavo was built without ", missing_for_expressions());
}
bool Expression::search(std::string_view, std::size_t, MatchMemory&, Match&) const { return false; }

std::string_view missing_for_expressions() { return "PCRE2 (Debian: libpcre2-dev)"; }

}  // namespace octavo::tokenizer
