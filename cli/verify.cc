// octavo verify: will vLLM, transformers, SGLang, TensorRT-LLM, ComfyUI or octavo load this
// checkpoint correctly? And with --against: are its weights those of this model?

#include <memory>

#include "cli/checkpoint/verdict.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/names.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/pipeline/verify_against.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo verify out/                                 against the rules of every server
  octavo verify out/ --for vllm,sglang               of these, and all of them have to load it
  octavo verify out/ --against model/                and beside the model that it was made from
  octavo verify out/ --tensor-parallel 8             split over eight devices
  octavo verify out/ --json                          findings for a program to read

Reads configuration, headers, scales and codes (--no-codes leaves them out), and runs no server.
Findings are errors (it does not load, or loads as something else) or warnings. The exit code is 0
if a loader loads it and none loads something else without saying so; with --for if all of those
load it, with --strict if there is no finding. Otherwise it is 1.)";

struct Arguments {
  std::string input, against;
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

int print_rules(const Globals& globals) {
  Json list = Json::array();
  std::string out;
  for (const VerifyRule& rule : verify_rules()) {
    list.push(Json::object({{"rule", rule.id}, {"what", rule.what}}));
    out += formatted("{:<20} {}\n", rule.id, rule.what);
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
  check_model("verify", arguments.input);
  if (!arguments.against.empty()) check_model("verify", arguments.against);
  Verification seen = verify_all(CheckpointReader(arguments.input), options);
  if (!arguments.against.empty())
    for (Finding& finding : verify_against(arguments.input, arguments.against))
      seen.findings.push_back(std::move(finding));
  const bool good = seen.good(arguments.strict);
  if (globals.json) {
    print(json_of(seen, arguments.strict) + "\n");
    return good ? kGood : kFailed;
  }
  print(findings_text(seen.findings));
  const std::string what =
      seen.quantized ? formatted("{}, {}", seen.dialect, counted(seen.weights, "quantized weight"))
                     : std::string("not quantized");
  print(formatted("{} ({}): {}, {}\n", octavo::shown(arguments.input, 200), what,
                  counted(seen.errors(), "error"),
                  counted(seen.findings.size() - seen.errors(), "warning")));
  print(verdict_text(verdict_of(seen.loaders, seen.findings), VerdictDetail::counts));
  print(scope_text(seen.scope, options));
  return good ? kGood : kFailed;
}

}  // namespace

Command add_verify(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "verify",
                                 "Check that servers will load a quantized checkpoint", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->input, "A folder, a .safetensors or a .gguf file")
      ->type_name("");
  app->add_option("--for", arguments->loaders,
                  "Loaders that have to load it, separated by commas: " + listed(loader_names()) +
                      " (default: one of those that serve models, or of whose dialect it is)")
      ->type_name("NAMES")
      ->expected(1)
      ->allow_extra_args(false)
      ->delimiter(',')
      ->take_all();
  app->add_option("--against", arguments->against,
                  "The model that it was made from: weights have to be its weights, rounded")
      ->type_name("MODEL");
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
