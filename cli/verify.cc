// octavo verify: will vLLM, transformers, SGLang and TensorRT-LLM load this checkpoint correctly?
#include <fmt/format.h>

#include <map>
#include <memory>
#include <tuple>

#include "cli/checkpoint/verdict.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "cli/text/names.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/json/json.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo verify out/                                 against the rules of every server
  octavo verify out/ --for vllm,sglang               of these
  octavo verify out/ --tensor-parallel 8             split over eight devices
  octavo verify out/ --json                          findings for a program to read

Reads configuration, headers, scales and codes (--no-codes leaves them out), and runs no server. Findings are errors (it does not load,
or loads as something else) or warnings. The exit code is 1 if there is an error, or with --strict if
there is any finding.)";

struct Arguments {
  std::string input;
  std::vector<std::string> loaders;
  int tensor_parallel = 1;
  bool strict = false, rules = false, no_codes = false;
};

std::vector<Loader> loaders_of(const std::vector<std::string>& typed) {
  std::vector<Loader> out;
  for (const std::string& name : typed)
    out.push_back(named_argument("[verify] --for:", name, loader_names(), parse_loader));
  return out;
}

// One line per finding with all its loaders; of findings that differ only in numbers the first
// three.
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
    lines.push_back(fmt::format(
        "{} {}: {}: {}{}",
        finding.severity == Severity::error ? style.bad("error") : style.warn("warning"), loaders,
        finding.rule, finding.tensor.empty() ? "" : octavo::shown(finding.tensor, 160) + ": ",
        octavo::shown(finding.message, 500)));
  std::string out;
  for (const std::string& line : limit_repeats(lines)) out += line + "\n";
  return out;
}

// The scope of the check, which without findings is the whole result.
std::string scope_text(const VerifyScope& scope, bool codes) {
  std::string out = fmt::format(
      "{} in {}, {}, against {}; ", counted(scope.tensors, "tensor"), counted(scope.files, "file"),
      codes ? fmt::format("{} read", counted(scope.bytes, "byte"))
            : fmt::format("of which {} {} read (--no-codes)", counted(scope.bytes, "byte"),
                          plural(static_cast<std::int64_t>(scope.bytes), "was", "were")),
      counted(scope.rules, "rule"));
  if (scope.architecture)
    out += fmt::format("which tensors a '{}' has is known", octavo::shown(scope.model_type, 60));
  else
    out += fmt::format("which tensors {} has is not known, and was not checked",
                       scope.model_type.empty()
                           ? std::string("the model")
                           : fmt::format("a '{}'", octavo::shown(scope.model_type, 60)));
  return fmt::format("  checked        {}\n", out);
}

int print_rules(const Globals& globals) {
  Json list = Json::array();
  std::string out;
  for (const VerifyRule& rule : verify_rules()) {
    list.push(Json::object({{"rule", rule.id}, {"what", rule.what}}));
    out += fmt::format("{:<20} {}\n", rule.id, rule.what);
  }
  print(globals.json ? list.dump() + "\n" : out);
  return kGood;
}

int run_verify(const Arguments& arguments, const Globals& globals) {
  if (arguments.rules) return print_rules(globals);
  if (arguments.input.empty())
    throw UsageError("[verify] got no checkpoint; give a folder or a .safetensors file");
  VerifyOptions options{.tensor_parallel = arguments.tensor_parallel, .codes = !arguments.no_codes};
  if (!arguments.loaders.empty()) options.loaders = loaders_of(arguments.loaders);
  const Verification seen = verify_all(CheckpointReader(arguments.input), options);
  const bool good = seen.good(arguments.strict);
  if (globals.json) {
    print(json_of(seen, options.loaders, arguments.strict) + "\n");
    return good ? kGood : kFailed;
  }
  print(findings_text(seen.findings));
  const std::string what = seen.quantized ? fmt::format("{}, {}", seen.dialect,
                                                        counted(seen.weights, "quantized weight"))
                                          : std::string("not quantized");
  print(fmt::format("{} ({}): {}, {}\n", octavo::shown(arguments.input, 200), what,
                    counted(seen.errors(), "error"),
                    counted(seen.findings.size() - seen.errors(), "warning")));
  print(verdict_text(verdict_of(options.loaders, seen.findings), VerdictDetail::counts));
  print(scope_text(seen.scope, options.codes));
  return good ? kGood : kFailed;
}

}  // namespace

Command add_verify(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "verify",
                                 "Check that servers will load a quantized checkpoint", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->input, "A folder, a .safetensors or a .gguf file")
      ->type_name("");
  app->add_option(
         "--for", arguments->loaders,
         "Loaders to check for, separated by commas: " + listed(loader_names()) + " (default: all)")
      ->type_name("NAMES")
      ->expected(1)
      ->allow_extra_args(false)
      ->delimiter(',')
      ->take_all();
  app->add_option("--tensor-parallel", arguments->tensor_parallel,
                  "Over how many devices matrices are split (default 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  app->add_flag("--strict", arguments->strict, "Warnings are failures too");
  app->add_flag("--no-codes", arguments->no_codes,
                "Do not read codes, only configuration, headers and scales");
  app->add_flag("--rules", arguments->rules, "List the rules");
  return {app, [arguments, &globals] { return run_verify(*arguments, globals); }};
}

}  // namespace octavo::cli
