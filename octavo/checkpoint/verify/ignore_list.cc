// The ignore list as vLLM, SGLang, TensorRT-LLM and transformers match it.
#include "octavo/checkpoint/verify/ignore_list_internal.h"

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr std::size_t kMaxName = 2048;

bool matches_glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Path prefix: "a.b" covers "a.b" and "a.b.c".
bool is_prefix(std::string_view path, std::string_view module) {
  return module == path ||
         (module.size() > path.size() && module.starts_with(path) && module[path.size()] == '.');
}

std::string_view without_model(std::string_view module) {
  constexpr std::string_view kModel = "model.";
  return module.starts_with(kModel) ? module.substr(kModel.size()) : module;
}

// Does the glob match one of the dot-separated components?
bool matches_a_part(std::string_view pattern, std::string_view module) {
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    if (matches_glob(pattern, module.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

IgnoreExpression::IgnoreExpression(std::string_view text) : text_(text) {
  plain_ = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.';
  });
  if (plain_) return;
  try {
    pattern_.emplace(text);
  } catch (const Error&) {
  }
}

bool IgnoreExpression::begins(std::string_view name) const {
  if (name.size() > kMaxName || !is_read()) return false;
  if (!plain_) return pattern_->begins(name);
  return name.size() >= text_.size() &&
         std::equal(text_.begin(), text_.end(), name.begin(),
                    [](char wanted, char c) { return wanted == '.' || wanted == c; });
}

bool IgnoreExpression::is_broken() const {
  if (is_read()) return false;
  std::size_t open = 0;
  bool repeats_nothing = true;  // a repetition here has no operand
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const char c = text_[i];
    const bool begins = c == '(' || c == '|' || c == '^';
    if (c == '\\' && ++i == text_.size()) return true;
    if (c == ')' && open-- == 0) return true;
    if ((c == '*' || c == '+' || c == '?') && repeats_nothing) return true;
    if (c == '(') {
      ++open;
      if (text_.substr(i + 1).starts_with('?')) ++i;  // group modifier
    }
    if (c == '[') {
      i += text_.substr(i + 1).starts_with('^') ? 2 : 1;  // a bracket in first position is literal
      do {
        if (i < text_.size() && text_[i] == '\\') ++i;
        if (++i >= text_.size()) return true;
      } while (text_[i] != ']');
    }
    repeats_nothing = begins;
  }
  return open > 0;
}

IgnoreList::IgnoreList(Dialect dialect, const Json& list) : dialect_(dialect) {
  for (const Json& one : list.elements()) add(one.string_or(""));
}

void IgnoreList::add(std::string_view text) {
  if (text.empty() || !exact_.insert(text).second) return;
  Entry entry{.text = text};
  constexpr std::string_view kRegex = "re:";
  if (dialect_ == Dialect::compressed_tensors) {
    if (!text.starts_with(kRegex)) return;
    entry.expression.emplace(text.substr(kRegex.size()));
  } else if (dialect_ == Dialect::deepseek) {
    entry.expression.emplace(text);
  }
  entries_.push_back(std::move(entry));
}

template <typename Asked>
std::string_view IgnoreList::first(Loader loader, Asked asked) const {
  if (dialect_ == Dialect::deepseek && loader != Loader::transformers) return {};
  for (const Entry& entry : entries_)
    if (entry.expression && asked(*entry.expression)) return entry.text;
  return {};
}

std::string_view IgnoreList::unread(Loader loader) const {
  return first(loader, [](const IgnoreExpression& one) { return !one.is_read(); });
}

std::string_view IgnoreList::broken(Loader loader) const {
  return first(loader, [](const IgnoreExpression& one) { return one.is_broken(); });
}

bool IgnoreList::covers(Loader loader, const std::string& module) const {
  if (exact_.contains(module)) return true;
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return covers(loader, entry, module); });
}

bool IgnoreList::covers(Loader loader, const Entry& entry, const std::string& module) const {
  if (dialect_ == Dialect::compressed_tensors) return entry.expression->begins(module);
  if (dialect_ == Dialect::modelopt) {
    if (matches_glob(entry.text, module)) return true;
    if (loader == Loader::sglang)
      return is_prefix(entry.text, module) || matches_a_part(entry.text, module);
    // vLLM matches any substring of a name: "mlp.gate" ignores "mlp.gate_proj".
    return loader == Loader::vllm && module.find(entry.text) != std::string::npos;
  }
  switch (loader) {
    case Loader::vllm:
    case Loader::comfyui:  // neither of these two has a list
    case Loader::octavo:
      return false;
    case Loader::sglang:
      return is_prefix(without_model(entry.text), without_model(module));
    case Loader::trtllm:
      return matches_glob(entry.text, module);
    case Loader::transformers:
      break;
  }
  // A regular expression at the beginning of the name, or a suffix: "mlp.gate" ignores
  // "mlp.gate_proj".
  return module.ends_with(entry.text) || entry.expression->begins(module);
}

}  // namespace octavo
