#include "octavo/checkpoint/verify/loader_verdict.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/verify/verify_internal.h"

namespace octavo {
namespace {

Json json_of(const VerifyScope& scope) {
  return Json::object({{"files", scope.files},
                       {"tensors", scope.tensors},
                       {"bytes", scope.bytes},
                       {"rules", scope.rules},
                       {"architecture", scope.architecture}});
}

Json json_of(const std::map<std::string, Tally>& tallies) {
  Json out = Json::object();
  for (const auto& [name, tally] : tallies)
    out.set(name, Json::object({{"loads", tally.errors == 0},
                                {"errors", tally.errors},
                                {"warnings", tally.warnings}}));
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

std::string json_of(const Verdict& verdict) {
  Json loads = Json::array(), fails = Json::object();
  for (const std::string& name : verdict.loads) loads.push(name);
  for (std::size_t i = 0; i < verdict.fails.size(); ++i)
    fails.set(verdict.fail_names[i], verdict.fails[i]->message);
  return Json::object({{"loads", std::move(loads)}, {"does_not_load", std::move(fails)}}).dump();
}

std::size_t Verification::errors() const {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [](const Finding& finding) { return finding.severity == Severity::error; }));
}

bool Verification::good(bool strict) const {
  if (strict) return findings.empty();
  if (named) return errors() == 0;
  return !verdict_of(loaders, findings).loads.empty() &&
         std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.silent; });
}

Verification verify_all(const CheckpointReader& checkpoint, const VerifyOptions& options) {
  Verification out{.loaders = checked_loaders(options, {}), .named = !options.loaders.empty()};
  out.findings = verify(checkpoint, options);
  out.scope = verify_scope(checkpoint, options);
  try {
    Misfits misfits;
    const Recognized recognized = recognize_all(checkpoint, &misfits);
    out.loaders = checked_loaders(options, recognized);
    out.quantized = recognized.quantized;
    if (out.quantized) out.dialect = name_of(recognized.dialect);
    out.weights = static_cast<std::int64_t>(recognized.weights.size());
  } catch (const Error&) {  // the findings report the reason
  }
  return out;
}

std::string json_of(const Verification& verification, bool strict) {
  Json list = Json::array();
  for (const Finding& finding : verification.findings)
    list.push(Json::object({{"severity", finding.severity == Severity::error ? "error" : "warning"},
                            {"loader", finding.loader},
                            {"rule", finding.rule},
                            {"tensor", finding.tensor},
                            {"message", finding.message},
                            {"silent", finding.silent}}));
  return Json::object(
             {{"good", verification.good(strict)},
              {"quantized", verification.quantized},
              {"dialect", verification.quantized ? Json(verification.dialect) : Json()},
              {"weights", verification.weights},
              {"checked", json_of(verification.scope)},
              {"loaders", json_of(verdict_of(verification.loaders, verification.findings).tallies)},
              {"findings", std::move(list)}})
      .dump();
}

}  // namespace octavo
