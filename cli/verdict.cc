#include "cli/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "cli/terminal.h"
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

Verdict verdict_of(const std::vector<Loader>& loaders, const std::vector<Finding>& findings) {
  Verdict out;
  for (const Loader loader : loaders) {
    Tally& tally = out.tallies[std::string(name_of(loader))];
    for (const Finding& finding : findings)
      if (finding.loader == name_of(loader) || finding.loader == "all")
        ++(finding.severity == Severity::error ? tally.errors : tally.warnings);
    const auto wrong = std::find_if(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.severity == Severity::error &&
             (finding.loader == name_of(loader) || finding.loader == "all");
    });
    if (wrong == findings.end()) {
      out.loads.emplace_back(name_of(loader));
    } else {
      out.fails.push_back(&*wrong);
      out.fail_names.emplace_back(name_of(loader));
    }
  }
  return out;
}

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string verdict_text(const Verdict& verdict, Behind behind) {
  const Style style(stdout);
  const auto with_counts = [&](const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const std::string& name : names) {
      const auto& [errors, warnings] = verdict.tallies.at(name);
      std::string counts = errors > 0 ? counted(errors, "error") : "";
      if (warnings > 0) counts += (errors > 0 ? ", " : "") + counted(warnings, "warning");
      out.push_back(counts.empty() || behind == Behind::reasons
                        ? name
                        : fmt::format("{} ({})", name, counts));
    }
    return out;
  };
  std::string out;
  if (!verdict.loads.empty())
    out += fmt::format("  {} {}\n", style.good("loads in      "),
                       fmt::join(with_counts(verdict.loads), ", "));
  if (verdict.fails.empty()) return out;
  if (behind == Behind::counts)
    return out + fmt::format("  {} {}\n", style.bad("does not load:"),
                             fmt::join(with_counts(verdict.fail_names), ", "));
  for (std::size_t i = 0; i < verdict.fails.size(); ++i)
    out += fmt::format("  {} {} ({}: {})\n", style.bad("does not load:"), verdict.fail_names[i],
                       verdict.fails[i]->rule, octavo::shown(verdict.fails[i]->message, 120));
  return out;
}

Json json_of(const std::map<std::string, Tally>& tallies) {
  Json out = Json::object();
  for (const auto& [name, tally] : tallies)
    out.set(name, Json::object({{"loads", tally.errors == 0},
                                {"errors", tally.errors},
                                {"warnings", tally.warnings}}));
  return out;
}

Json json_of(const Verdict& verdict) {
  Json loads = Json::array(), fails = Json::object();
  for (const std::string& name : verdict.loads) loads.push(name);
  for (std::size_t i = 0; i < verdict.fails.size(); ++i)
    fails.set(verdict.fail_names[i], verdict.fails[i]->message);
  return Json::object({{"loads", std::move(loads)}, {"does_not_load", std::move(fails)}});
}

std::vector<std::string> without_floods(const std::vector<std::string>& lines) {
  struct Kind {
    std::size_t count = 0, last = 0;  // where the last one that is shown stands
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
      out.push_back(fmt::format("and {} more like it (--json has all)", kind.count - kShown));
  }
  return out;
}

}  // namespace octavo::cli
