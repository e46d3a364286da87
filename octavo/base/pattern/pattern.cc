// Compilation of expressions to an NFA, and its simulation over all states at once.
#include "octavo/base/pattern/pattern.h"

#include "octavo/base/error.h"
#include "octavo/base/pattern/pattern_parser_internal.h"
#include "octavo/base/pattern/pattern_text_internal.h"

namespace octavo {
namespace {

using Node = PatternNode;
using Kind = Pattern::Kind;
using Step = Pattern::Step;

// Thompson's construction: every part of the tree becomes steps that end where the next part's
// begin, so that parts are put one behind the other.
class Compiler {
 public:
  Compiler(std::string_view expression, std::vector<Step>& steps,
           std::vector<Pattern::Characters>& sets)
      : expression_(expression), steps_(steps), sets_(sets) {}

  // Returns the first step. An automaton that reads backwards has sequences the other way round.
  std::uint32_t automaton(const Node& node, bool backwards) {
    const std::uint32_t first = here();
    backwards_ = backwards;
    add(node);
    push(Kind::found);
    return first;
  }

 private:
  [[nodiscard]] std::uint32_t here() const { return static_cast<std::uint32_t>(steps_.size()); }

  std::uint32_t push(Kind kind, std::uint32_t a = 0, std::uint32_t b = 0) {
    count();
    steps_.push_back({kind, a, b});
    return here() - 1;
  }

  // Steps, and parts that make none: nothing, a thousand times a thousand times, takes time too.
  void count() {
    if (++work_ > 4 * Pattern::kMaxSteps || steps_.size() >= Pattern::kMaxSteps)
      fail(ErrorCode::invalid_argument, "pattern", "'", shown(expression_),
           "' has too many repetitions: more than ", Pattern::kMaxSteps, " states");
  }

  void add(const Node& node) {
    count();
    switch (node.kind) {
      case Node::Kind::character:
        push(Kind::character, node.character);
        break;
      case Node::Kind::characters:
        sets_.push_back(node.characters);
        push(Kind::characters, static_cast<std::uint32_t>(sets_.size() - 1));
        break;
      case Node::Kind::assertion:
        push(node.assertion, node.ahead);
        break;
      case Node::Kind::sequence:
        for (std::size_t i = 0, n = node.parts.size(); i < n; ++i)
          add(node.parts[backwards_ ? n - 1 - i : i]);
        break;
      case Node::Kind::either:
        add_either(node);
        break;
      case Node::Kind::repeat:
        add_repeat(node);
        break;
    }
  }

  void add_either(const Node& node) {
    std::vector<std::uint32_t> to_end;
    for (std::size_t i = 0; i + 1 < node.parts.size(); ++i) {
      const std::uint32_t fork = push(Kind::split);
      steps_[fork].a = here();
      add(node.parts[i]);
      to_end.push_back(push(Kind::jump));
      steps_[fork].b = here();
    }
    add(node.parts.back());
    for (const std::uint32_t jump : to_end) steps_[jump].a = here();
  }

  void add_repeat(const Node& node) {
    const Node& part = node.parts.front();
    for (std::uint32_t i = 0; i < node.least; ++i) add(part);
    if (node.most == kPatternNoLimit) {
      const std::uint32_t fork = push(Kind::split);
      steps_[fork].a = here();
      add(part);
      push(Kind::jump, fork);
      steps_[fork].b = here();
      return;
    }
    std::vector<std::uint32_t> forks;
    for (std::uint32_t i = node.least; i < node.most; ++i) {
      forks.push_back(push(Kind::split));
      steps_[forks.back()].a = here();
      add(part);
    }
    for (const std::uint32_t fork : forks) steps_[fork].b = here();
  }

  std::string_view expression_;
  std::vector<Step>& steps_;
  std::vector<Pattern::Characters>& sets_;
  std::size_t work_ = 0;
  bool backwards_ = false;
};

using Marks = std::vector<std::vector<bool>>;  // by lookahead and byte: does it hold there?

// All steps that are reached at one place, each once: Pike's simulation, without captures.
class States {
 public:
  States(const std::vector<Step>& steps, std::string_view text, const Marks& marks)
      : steps_(steps), text_(text), marks_(marks), seen_(steps.size(), 0) {}

  void move_to(std::size_t at) {
    at_ = at;
    waiting_.clear();
    found_ = false;
    ++turn_;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& waiting() const { return waiting_; }
  [[nodiscard]] bool found() const { return found_; }

  // Follows everything that takes no character.
  void reach(std::uint32_t first) {
    for (stack_.push_back(first); !stack_.empty();) {
      std::uint32_t i = stack_.back();
      stack_.pop_back();
      while (seen_[i] != turn_) {
        seen_[i] = turn_;
        const Step& step = steps_[i];
        if (step.kind == Kind::character || step.kind == Kind::characters) {
          waiting_.push_back(i);
        } else if (step.kind == Kind::split) {
          stack_.push_back(step.b);
          i = step.a;
        } else if (step.kind == Kind::jump) {
          i = step.a;
        } else if (step.kind == Kind::found) {
          found_ = true;
        } else if (holds(step)) {
          ++i;
        }
      }
    }
  }

 private:
  [[nodiscard]] bool holds(const Step& assertion) const {
    switch (assertion.kind) {
      case Kind::begin:
        return at_ == 0;
      case Kind::end:  // as in Python, a line end may follow
        return at_ == text_.size() || (at_ + 1 == text_.size() && text_[at_] == '\n');
      case Kind::boundary:
        return is_boundary(text_, at_);
      case Kind::no_boundary:
        return !is_boundary(text_, at_);
      case Kind::ahead:
        return marks_[assertion.a][at_];
      default:
        return !marks_[assertion.a][at_];
    }
  }

  const std::vector<Step>& steps_;
  std::string_view text_;
  const Marks& marks_;
  std::vector<std::size_t> seen_;
  std::size_t at_ = 0, turn_ = 1;
  bool found_ = false;
  std::vector<std::uint32_t> waiting_, stack_;
};

}  // namespace

Pattern::Pattern(std::string_view expression) {
  const PatternTree tree = parse_pattern(expression);
  Compiler compiler(expression, steps_, sets_);
  for (const PatternNode& ahead : tree.aheads) aheads_.push_back(compiler.automaton(ahead, true));
  first_ = compiler.automaton(tree.whole, false);
}

bool Pattern::search(std::string_view text, bool only_at_begin) const {
  Marks marks;
  States first(steps_, text, marks), second(steps_, text, marks);
  States *now = &first, *next = &second;
  const auto take = [&](std::uint32_t character, std::size_t to) {
    next->move_to(to);
    for (const std::uint32_t i : now->waiting()) {
      const Step& step = steps_[i];
      const bool taken = step.kind == Kind::character ? step.a == character
                         : character < 128            ? sets_[step.a].ascii.test(character)
                                                      : sets_[step.a].others;
      if (taken) next->reach(i + 1);
    }
    std::swap(now, next);
  };
  // A lookahead holds where its automaton, which began anywhere behind and read backwards, ends:
  // one pass over the text marks all such places.
  for (const std::uint32_t ahead : aheads_) {
    std::vector<bool> holds(text.size() + 1);
    now->move_to(text.size());
    for (std::size_t at = text.size();;) {
      now->reach(ahead);
      holds[at] = now->found();
      if (at == 0) break;
      const std::size_t to = character_before(text, at);
      take(character_at(text, to).value, to);
      at = to;
    }
    marks.push_back(std::move(holds));
  }
  now->move_to(0);
  for (std::size_t at = 0;;) {
    if (at == 0 || !only_at_begin) now->reach(first_);
    if (now->found()) return true;
    if (at == text.size() || (only_at_begin && now->waiting().empty())) return false;
    const PatternCharacter character = character_at(text, at);
    at += character.bytes;
    take(character.value, at);
  }
}

}  // namespace octavo
