#include "cli/checkpoint/verdict.h"

#include <map>
#include <tuple>

#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

constexpr std::size_t kShown = 3;

std::string without_digits(std::string_view line) {
  std::string out;
  for (const char c : line) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

}  // namespace

std::string verdict_text(const Verdict& verdict, VerdictDetail behind) {
  const Style style(stdout);
  const auto with_counts = [&](const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const std::string& name : names) {
      const auto& [errors, warnings] = verdict.tallies.at(name);
      std::string counts = errors > 0 ? counted(errors, "error") : "";
      if (warnings > 0) counts += (errors > 0 ? ", " : "") + counted(warnings, "warning");
      out.push_back(counts.empty() || behind == VerdictDetail::reasons
                        ? name
                        : formatted("{} ({})", name, counts));
    }
    return out;
  };
  std::string out;
  if (!verdict.loads.empty())
    out += formatted("  {} {}\n", style.good("loads in      "),
                     joined(with_counts(verdict.loads), ", "));
  if (verdict.fails.empty()) return out;
  if (behind == VerdictDetail::counts)
    return out + formatted("  {} {}\n", style.bad("does not load:"),
                           joined(with_counts(verdict.fail_names), ", "));
  for (std::size_t i = 0; i < verdict.fails.size(); ++i)
    out += formatted("  {} {} ({}: {})\n", style.bad("does not load:"), verdict.fail_names[i],
                     verdict.fails[i]->rule, octavo::shown(verdict.fails[i]->message, 400));
  return out;
}

std::string findings_text(const std::vector<Finding>& findings) {
  const Style style(stdout);
  std::vector<std::pair<Finding, std::string>> merged;  // with the names of all its loaders
  std::map<std::tuple<Severity, std::string, std::string, std::string>, std::size_t> places;
  for (const Finding& finding : findings) {
    const auto [at, is_new] = places.try_emplace(
        {finding.severity, finding.rule, finding.tensor, finding.message}, merged.size());
    if (is_new)
      merged.emplace_back(finding, finding.loader);
    else
      merged[at->second].second += ", " + finding.loader;
  }
  std::vector<std::string> lines;
  for (const auto& [finding, loaders] : merged)
    lines.push_back(formatted(
        "{} {}: {}: {}{}",
        finding.severity == Severity::error ? style.bad("error") : style.warn("warning"), loaders,
        finding.rule, finding.tensor.empty() ? "" : octavo::shown(finding.tensor, 160) + ": ",
        octavo::shown(finding.message, 500)));
  std::string out;
  for (const std::string& line : limit_repeats(lines)) out += line + "\n";
  return out;
}

std::string scope_text(const VerifyScope& scope, const VerifyOptions& options) {
  std::string out = formatted(
      "{} in {}, {}, against {}; ", counted(static_cast<std::size_t>(scope.tensors), "tensor"),
      counted(static_cast<std::size_t>(scope.files), "file"),
      !options.codes        ? formatted("of which {} bytes were read (--no-codes)", scope.bytes)
      : !options.every_byte ? std::string("of which a sample was read again")
                            : formatted("{} bytes read", scope.bytes),
      counted(static_cast<std::size_t>(scope.rules), "rule"));
  if (scope.architecture)
    out += formatted("which tensors a '{}' has is known", octavo::shown(scope.model_type, 60));
  else
    out += formatted("which tensors {} has is not known, and was not checked",
                     scope.model_type.empty()
                         ? std::string("the model")
                         : formatted("a '{}'", octavo::shown(scope.model_type, 60)));
  return formatted("  checked        {}\n", out);
}

std::vector<std::string> limit_repeats(const std::vector<std::string>& lines) {
  struct Kind {
    std::size_t count = 0, last = 0;  // index of the last line shown
  };
  std::map<std::string, Kind> kinds;
  std::vector<std::pair<std::string, const Kind*>> shown;
  for (const std::string& line : lines) {
    Kind& kind = kinds[without_digits(line)];
    if (++kind.count > kShown) continue;
    kind.last = shown.size();
    shown.emplace_back(line, &kind);
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    out.push_back(shown[i].first);
    const Kind& kind = *shown[i].second;
    if (kind.last == i && kind.count > kShown)
      out.push_back(formatted("and {} more like it (--json has all)", kind.count - kShown));
  }
  return out;
}

}  // namespace octavo::cli
