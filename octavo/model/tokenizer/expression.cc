#define PCRE2_CODE_UNIT_WIDTH 8
#include "octavo/model/tokenizer/expression_internal.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "octavo/base/error.h"

namespace octavo::tokenizer {
namespace {

constexpr std::size_t kMaxPatternBytes = 1U << 16;
// Steps of one match: a pattern that goes back over a long run of characters needs a few for each.
constexpr std::uint32_t kMinSteps = 20'000'000, kStepsPerByte = 16;
constexpr std::uint32_t kMaxHeapKibibytes = 256U << 10;
constexpr std::size_t kMinJitStack = 32U << 10, kMaxJitStack = 4U << 20;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

}  // namespace

struct MatchMemory::Parts {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kMinJitStack, kMaxJitStack, nullptr);

  Parts() {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    pcre2_set_heap_limit(context, kMaxHeapKibibytes);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Parts() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
};

MatchMemory::MatchMemory() : parts_(std::make_unique<Parts>()) {}
MatchMemory::~MatchMemory() = default;
MatchMemory::MatchMemory(MatchMemory&&) noexcept = default;
MatchMemory& MatchMemory::operator=(MatchMemory&&) noexcept = default;

struct Expression::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  std::string shown_as;

  explicit Code(std::string name) : shown_as(std::move(name)) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Expression::Expression(std::string_view oniguruma)
    : Expression(pcre2_syntax(oniguruma), shown(oniguruma)) {}

Expression Expression::from_pcre2(std::string_view pattern) { return {pattern, shown(pattern)}; }

Expression::~Expression() = default;
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;

Expression::Expression(std::string_view pattern, std::string shown_as) {
  check(pattern.size() <= kMaxPatternBytes, ErrorCode::unsupported, "tokenizer",
        "got a regular expression of ", pattern.size(), " bytes; expected at most ",
        kMaxPatternBytes);
  const auto made = std::make_shared<Code>(std::move(shown_as));
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  // Oniguruma: only LF ends a line, and ^ and $ are at each.
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int problem = 0;
  PCRE2_SIZE at = 0;
  made->code = pcre2_compile(bytes_of(pattern), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &problem, &at, context);
  pcre2_compile_context_free(context);
  check(made->code != nullptr, ErrorCode::invalid_argument, "tokenizer",
        "got the regular expression '", made->shown_as,
        "', which PCRE2 refuses: ", message_of(problem));
  made->jit = pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = made;
}

bool Expression::search(std::string_view text, std::size_t from, MatchMemory& memory,
                        Match& match) const {
  const MatchMemory::Parts& parts = *memory.parts_;
  const std::size_t steps =
      kMinSteps + std::min<std::size_t>(text.size(), 200'000'000) * kStepsPerByte;
  pcre2_set_match_limit(parts.context, static_cast<std::uint32_t>(steps));
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit)
    found = pcre2_jit_match(code_->code, bytes_of(text), text.size(), from, 0, parts.data,
                            parts.context);
  // Without JIT, or for a match that its stack is too small for.
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found = pcre2_match(code_->code, bytes_of(text), text.size(), from,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, parts.data, parts.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  check(found >= 0, ErrorCode::unsupported, "tokenizer", "the regular expression '",
        code_->shown_as, "' gave up on a text of ", text.size(), " bytes: ", message_of(found));
  const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer(parts.data);
  match = {offsets[0], std::max(offsets[0], offsets[1])};  // \K is refused, so it is in order
  return true;
}

std::string_view missing_for_expressions() { return {}; }

}  // namespace octavo::tokenizer
