// Compilation of expressions to an NFA, and its simulation over all states at once.
#include "octavo/base/pattern/pattern.h"

#include "octavo/base/error.h"
#include "octavo/base/pattern/pattern_parser_internal.h"

namespace octavo {
namespace {

using Node = PatternNode;
using Step = Pattern::Step;

// Thompson's construction: every part of the tree becomes steps that end where the next part's
// begin, so that parts are put one behind the other.
class Compiler {
 public:
  Compiler(std::string_view expression, std::vector<Step>& steps, std::vector<Pattern::Bytes>& sets)
      : expression_(expression), steps_(steps), sets_(sets) {}

  void add(const Node& node) {
    count();
    switch (node.kind) {
      case Node::Kind::nothing:
        break;
      case Node::Kind::bytes:
        sets_.push_back(node.bytes);
        push(Pattern::Kind::bytes, static_cast<std::uint32_t>(sets_.size() - 1));
        break;
      case Node::Kind::assertion:
        push(node.assertion);
        break;
      case Node::Kind::sequence:
        for (const Node& part : node.parts) add(part);
        break;
      case Node::Kind::either:
        add_either(node);
        break;
      case Node::Kind::repeat:
        add_repeat(node);
        break;
    }
  }
  std::uint32_t push(Pattern::Kind kind, std::uint32_t a = 0, std::uint32_t b = 0) {
    count();
    steps_.push_back({kind, a, b});
    return here() - 1;
  }

 private:
  [[nodiscard]] std::uint32_t here() const { return static_cast<std::uint32_t>(steps_.size()); }

  // Steps, and parts that make none: nothing, a thousand times a thousand times, takes time too.
  void count() {
    if (++work_ > 4 * Pattern::kMostSteps || steps_.size() >= Pattern::kMostSteps)
      fail(ErrorCode::invalid_argument, "pattern", "'", shown(expression_),
           "' has too many repetitions: more than ", Pattern::kMostSteps, " states");
  }

  void add_either(const Node& node) {
    std::vector<std::uint32_t> to_end;
    for (std::size_t i = 0; i + 1 < node.parts.size(); ++i) {
      const std::uint32_t fork = push(Pattern::Kind::split);
      steps_[fork].a = here();
      add(node.parts[i]);
      to_end.push_back(push(Pattern::Kind::jump));
      steps_[fork].b = here();
    }
    add(node.parts.back());
    for (const std::uint32_t jump : to_end) steps_[jump].a = here();
  }

  void add_repeat(const Node& node) {
    const Node& part = node.parts.front();
    for (std::uint32_t i = 0; i < node.least; ++i) add(part);
    if (node.most == kPatternNoLimit) {
      const std::uint32_t fork = push(Pattern::Kind::split);
      steps_[fork].a = here();
      add(part);
      push(Pattern::Kind::jump, fork);
      steps_[fork].b = here();
      return;
    }
    std::vector<std::uint32_t> forks;
    for (std::uint32_t i = node.least; i < node.most; ++i) {
      forks.push_back(push(Pattern::Kind::split));
      steps_[forks.back()].a = here();
      add(part);
    }
    for (const std::uint32_t fork : forks) steps_[fork].b = here();
  }

  std::string_view expression_;
  std::vector<Step>& steps_;
  std::vector<Pattern::Bytes>& sets_;
  std::size_t work_ = 0;
};

bool is_word(std::string_view text, std::size_t at) {
  if (at >= text.size()) return false;
  const char c = text[at];
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_boundary(std::string_view text, std::size_t at) {
  return is_word(text, at) != (at > 0 && is_word(text, at - 1));
}

// All steps that are reached at once, each once: Pike's simulation, without captures.
class States {
 public:
  explicit States(const std::vector<Step>& steps) : steps_(steps), seen_(steps.size(), 0) {}

  void clear() {
    waiting_.clear();
    ++turn_;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& waiting() const { return waiting_; }

  // Follows everything that takes no byte. True: it is found.
  bool reach(std::uint32_t first, std::string_view text, std::size_t at) {
    stack_.assign(1, first);
    while (!stack_.empty()) {
      const std::uint32_t i = stack_.back();
      stack_.pop_back();
      if (seen_[i] == turn_) continue;
      seen_[i] = turn_;
      const Step& step = steps_[i];
      switch (step.kind) {
        case Pattern::Kind::found:
          return true;
        case Pattern::Kind::bytes:
          waiting_.push_back(i);
          break;
        case Pattern::Kind::split:
          stack_.push_back(step.b);
          stack_.push_back(step.a);
          break;
        case Pattern::Kind::jump:
          stack_.push_back(step.a);
          break;
        case Pattern::Kind::begin:
          if (at == 0) stack_.push_back(i + 1);
          break;
        case Pattern::Kind::end:
          if (at == text.size()) stack_.push_back(i + 1);
          break;
        case Pattern::Kind::boundary:
          if (is_boundary(text, at)) stack_.push_back(i + 1);
          break;
        case Pattern::Kind::no_boundary:
          if (!is_boundary(text, at)) stack_.push_back(i + 1);
          break;
      }
    }
    return false;
  }

 private:
  const std::vector<Step>& steps_;
  std::vector<std::size_t> seen_;
  std::size_t turn_ = 1;
  std::vector<std::uint32_t> waiting_, stack_;
};

}  // namespace

Pattern::Pattern(std::string_view expression) {
  Compiler compiler(expression, steps_, sets_);
  compiler.add(parse_pattern(expression));
  compiler.push(Kind::found);
}

bool Pattern::search(std::string_view text, bool only_at_begin) const {
  States first(steps_), second(steps_);
  States *now = &first, *next = &second;
  for (std::size_t at = 0;; ++at) {
    if ((at == 0 || !only_at_begin) && now->reach(0, text, at)) return true;
    if (at == text.size() || (only_at_begin && now->waiting().empty())) return false;
    next->clear();
    for (const std::uint32_t i : now->waiting())
      if (sets_[steps_[i].a].test(static_cast<unsigned char>(text[at])) &&
          next->reach(i + 1, text, at + 1))
        return true;
    std::swap(now, next);
  }
}

}  // namespace octavo
