// The list of what is not quantized, as each loader reads it.
#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/pattern.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

constexpr std::array kAll{kV, kH, kS, kT};
constexpr std::size_t kMostName = 2048;

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

// "a.b" covers "a.b" and "a.b.c".
bool is_prefix(std::string_view path, std::string_view module) {
  return module == path ||
         (module.size() > path.size() && module.starts_with(path) && module[path.size()] == '.');
}

std::string_view without_model(std::string_view module) {
  constexpr std::string_view kModel = "model.";
  return module.starts_with(kModel) ? module.substr(kModel.size()) : module;
}

// An expression of a file, at the beginning of names. Full names are most of them, and only their
// dots are more than letters.
class Expression {
 public:
  explicit Expression(std::string_view text) : text_(text) {
    plain_ = std::all_of(text.begin(), text.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             c == '_' || c == '-' || c == '.';
    });
    if (plain_) return;
    try {
      pattern_.emplace(text);
    } catch (const Error&) {
    }
  }
  [[nodiscard]] bool is_read() const { return plain_ || pattern_.has_value(); }
  [[nodiscard]] bool begins(std::string_view name) const {
    if (name.size() > kMostName || !is_read()) return false;
    if (!plain_) return pattern_->begins(name);
    return name.size() >= text_.size() &&
           std::equal(text_.begin(), text_.end(), name.begin(),
                      [](char wanted, char c) { return wanted == '.' || wanted == c; });
  }

 private:
  std::string_view text_;
  bool plain_ = false;
  std::optional<Pattern> pattern_;
};

struct Entry {
  std::string_view text;
  std::optional<Expression> expression{};  // where a loader takes it for one
};

class SkipList {
 public:
  explicit SkipList(const VerifyView& view) : dialect_(view.recognized.dialect) {
    for (const std::string_view key : {"ignore", "ignored_layers", "modules_to_not_convert"}) {
      const Json& list = view.words[key].is_array()
                             ? view.words[key]
                             : view.checkpoint.hf_quant_config()["quantization"]["exclude_modules"];
      if (!list.is_array()) continue;
      for (const Json& one : list.elements()) add(one.string_or(""));
      return;
    }
  }

  // Expressions that octavo cannot read, in the eyes of a loader: what they cover is not known.
  [[nodiscard]] std::string_view unread(Loader loader) const {
    if (dialect_ == Dialect::deepseek && loader != kH) return {};
    for (const Entry& entry : entries_)
      if (entry.expression && !entry.expression->is_read()) return entry.text;
    return {};
  }

  [[nodiscard]] bool covers(Loader loader, const std::string& module) const {
    if (exact_.contains(module)) return true;
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) { return covers(loader, entry, module); });
  }

 private:
  void add(std::string_view text) {
    if (text.empty()) return;
    exact_.insert(text);
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

  [[nodiscard]] bool covers(Loader loader, const Entry& entry, const std::string& module) const {
    if (dialect_ == Dialect::compressed_tensors) return entry.expression->begins(module);
    if (dialect_ == Dialect::modelopt)
      return matches_glob(entry.text, module) || (loader == kS && is_prefix(entry.text, module));
    switch (loader) {
      case kV:
        return false;
      case kS:
        return is_prefix(without_model(entry.text), without_model(module));
      case kT:
        return matches_glob(entry.text, module);
      case kH:
        break;
    }
    // An expression at the beginning of the name, or the name's end: "mlp.gate" skips
    // "mlp.gate_proj".
    return module.ends_with(entry.text) || entry.expression->begins(module);
  }

  Dialect dialect_;
  std::set<std::string_view> exact_;
  std::vector<Entry> entries_;
};

bool has_skip_list(const VerifyView& view) {
  const Dialect dialect = view.recognized.dialect;
  return dialect != Dialect::comfyui && dialect != Dialect::octavo && !view.method.empty();
}

}  // namespace

void check_skip_list(const VerifyView& view, Findings& out) {
  if (!has_skip_list(view)) return;
  const SkipList skipped(view);
  for (const Loader loader : kAll)
    if (const std::string_view entry = skipped.unread(loader); !entry.empty())
      out.warn({loader}, "",
               text("the skip list has '", shown(entry, 80),
                    "', which octavo does not read as an expression; what it covers was not "
                    "checked"));
  // Groups that name modules quantize no others.
  bool by_class = view.recognized.dialect != Dialect::compressed_tensors;
  for (const auto& [name, group] : view.words["config_groups"].members())
    for (const Json& target : group["targets"].elements())
      by_class |= target.string_or("") == "Linear";
  if (!by_class || view.words["quantized_layers"].is_object()) return;
  for (const std::string& module : view.plain_linears) {
    const bool head = module.ends_with("lm_head");
    for (const Loader loader : kAll) {
      if (!skipped.unread(loader).empty() || skipped.covers(loader, module)) continue;
      if (head && loader != kH) continue;  // servers do not quantize it unasked
      out.error({loader}, module,
                "it is not quantized and not on the skip list as this loader reads it, so its "
                "scales are looked for in vain; name it in full");
    }
  }
}

void check_skipped_but_quantized(const VerifyView& view, Findings& out) {
  if (!has_skip_list(view)) return;
  const SkipList skipped(view);
  for (const VerifiedWeight& weight : view.weights)
    for (const Loader loader : kAll)
      if (skipped.covers(loader, weight.found->weight.module))
        out.error({loader}, weight.found->weight.module,
                  "it is quantized and on the skip list, so codes are loaded as if they were "
                  "weights");
}

}  // namespace octavo
