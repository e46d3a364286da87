// octavo attention-report: the error of each attention rung against f64, and which step it comes
// from.
#include "cli/attention_report.h"

#include <cmath>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/tensor/quantize_input.h"
#include "cli/terminal/terminal.h"
#include "cli/text/json_text.h"
#include "cli/text/names.h"
#include "cli/text/output_name.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/thread_pool.h"

namespace octavo::cli {
namespace {

constexpr const char* kOp = "attention-report";
constexpr const char* kExamples = R"(Examples:
  octavo attention-report                                    four kinds of inputs, every rung
  octavo attention-report --tokens 2048 --head-size 64       as long as yours are
  octavo attention-report --inputs peaked --causal --html report.html
  octavo attention-report --q q.npy --k k.npy --v v.npy      your own, [batch, heads, tokens, size]
  octavo attention-report --rung strict --rung fast --json
  octavo attention-report --rung auto --fail-above 0         exit code 3 unless all elements pass

An element fails where it is further than atol + rtol |exact| from attention in f64. 'strict' is
exact for its FP8 inputs; what those lose is in the first column of the steps.)";

struct Arguments {
  std::vector<std::string> inputs, rungs;
  std::string q, k, v, html;
  std::optional<std::string> from;
  std::int64_t tokens = 1024, head_size = 128, heads = 1, rows = 32;
  std::uint64_t seed = 1;
  double rtol = 5e-3, atol = 5e-3;
  bool causal = false;
  std::optional<double> fail_above;
  int threads = 0;
};

const std::vector<std::string> kSampleNames = {"normal", "outlier", "peaked", "biased"};
const std::vector<std::string> kRungNames = {"auto",   "exact",    "f32",  "bf16", "f16",
                                             "strict", "balanced", "fast", "naive"};

AttentionErrorOptions options_of(const Arguments& arguments) {
  AttentionErrorOptions options{.rtol = arguments.rtol,
                                .atol = arguments.atol,
                                .mask = {.causal = arguments.causal},
                                .rows = arguments.rows,
                                .threads = arguments.threads};
  if (arguments.rungs.empty()) return options;
  options.rungs.clear();
  for (const std::string& name : arguments.rungs)
    options.rungs.push_back(
        named_argument("[attention-report] --rung:", name, kRungNames, parse_attention_rung));
  return options;
}

// Files have two to four dimensions; the report needs four.
View with_four_dimensions(View view) {
  if (view.shape.rank() > 4 || view.shape.rank() < 2) return view;  // the library reports the error
  const int missing = 4 - view.shape.rank();
  Shape shape{1, 1, 1, 1}, strides{0, 0, 0, 0};
  for (int i = 0; i < view.shape.rank(); ++i) {
    shape[missing + i] = view.shape[i];
    strides[missing + i] = view.strides[i];
  }
  view.shape = shape;
  view.strides = strides;
  return view;
}

void measure_files(const Arguments& arguments, const AttentionErrorOptions& options,
                   AttentionFindings& findings) {
  const auto read = [&](const std::string& path) {
    return read_quantize_input(kOp, path, arguments.from, 16.0);
  };
  const QuantizeInput q = read(arguments.q), k = read(arguments.k), v = read(arguments.v);
  const View wide_q = with_four_dimensions(q.values), wide_k = with_four_dimensions(k.values);
  findings.q = wide_q.shape;
  findings.k = wide_k.shape;
  findings.cases.push_back(
      {text("given", arguments.causal ? ", causal" : ""),
       measure_attention(wide_q, wide_k, with_four_dimensions(v.values), options)});
}

void measure_samples(const Arguments& arguments, AttentionErrorOptions options,
                     AttentionFindings& findings) {
  std::vector<std::pair<std::string, bool>> wanted;
  for (const std::string& name : arguments.inputs) wanted.emplace_back(name, arguments.causal);
  if (wanted.empty()) {
    for (const std::string& name : kSampleNames) wanted.emplace_back(name, arguments.causal);
    if (!arguments.causal) wanted.emplace_back("normal", true);
  }
  for (const auto& [name, causal] : wanted) {
    const AttentionSample sample =
        named_argument("[attention-report] --inputs:", name, kSampleNames, parse_attention_sample);
    const AttentionSampleInputs inputs = sample_attention(sample, arguments.heads, arguments.tokens,
                                                          arguments.head_size, arguments.seed);
    findings.q = inputs.q.shape();
    findings.k = inputs.k.shape();
    options.mask.causal = causal;
    findings.cases.push_back(
        {text(name, causal ? ", causal" : ""),
         measure_attention(inputs.q.view(), inputs.k.view(), inputs.v.view(), options)});
  }
}

void check_limit(const char* name, double limit) {
  if (limit >= 0.0 && std::isfinite(limit)) return;
  throw UsageError(
      text("[attention-report] got ", name, " ", limit, "; expected a number of at least 0"));
}

int run_report(const Arguments& arguments, const Globals& globals) {
  check_limit("--rtol", arguments.rtol);
  check_limit("--atol", arguments.atol);
  if (arguments.fail_above) check_limit("--fail-above", *arguments.fail_above);
  const AttentionErrorOptions options = options_of(arguments);
  const int files = !arguments.q.empty() + !arguments.k.empty() + !arguments.v.empty();
  if (files != 0 && files != 3)
    throw UsageError("[attention-report] got some of --q, --k and --v; expected all three or none");
  if (files == 3 && !arguments.inputs.empty())
    throw UsageError("[attention-report] got files and --inputs; expected one of them");
  if (!arguments.html.empty()) {
    check_ending(kOp, "--html", output_name(kOp, arguments.html), ".html");
    const WholeFile could_be_written(kOp, arguments.html);
  }
  AttentionFindings findings{
      .rows = arguments.rows, .rtol = arguments.rtol, .atol = arguments.atol};
  if (files == 3) {
    measure_files(arguments, options, findings);
  } else {
    measure_samples(arguments, options, findings);
  }
  if (!arguments.html.empty()) {
    write_whole_file(kOp, arguments.html, html_of(findings));
    say(text("wrote ", arguments.html));
  }
  print(globals.json ? json_text(json_of(findings)) : table_of(findings));
  bool missed = false;
  for (const AttentionCase& inputs : findings.cases)
    for (const AttentionRungError& error : inputs.rungs) {
      const double share = 100.0 * share_of(error, error.failures);
      if (!arguments.fail_above || share <= *arguments.fail_above) continue;
      missed = true;
      say(text(Style(stderr).bad("octavo:"), " [attention-report] limit missed: ", share,
               " % of elements fail with ", name_of(error.rung), " on ", inputs.name));
    }
  return missed ? kGateMissed : kGood;
}

}  // namespace

Command add_attention_report(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, kOp,
                     "Measure attention in FP8 and INT8 against f64, step by step", kExamples);
  auto a = std::make_shared<Arguments>();
  app->add_option("--inputs", a->inputs,
                  "Made inputs: " + listed(kSampleNames) +
                      "; may be repeated (default: all, and normal causal)")
      ->type_name("KIND")
      ->take_all();
  app->add_option("--q", a->q, "Q from a .npy file, with --k and --v")->type_name("FILE");
  app->add_option("--k", a->k, "K from a .npy file")->type_name("FILE");
  app->add_option("--v", a->v, "V from a .npy file")->type_name("FILE");
  app->add_option("--from", a->from,
                  "What the elements of the files are where they do not say: bfloat16")
      ->type_name("TYPE");
  app->add_option("--tokens", a->tokens, "Of made inputs (default 1024)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20).description(""));
  app->add_option("--head-size", a->head_size, "Of made inputs (default 128)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  app->add_option("--heads", a->heads, "Of made inputs (default 1)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024).description(""));
  app->add_option("--seed", a->seed, "Of made inputs (default 1)")
      ->type_name("N")
      ->check(seed_problem);
  app->add_flag("--causal", a->causal, "A row sees keys up to its own");
  app->add_option(
         "--rung", a->rungs,
         "One of " + listed(kRungNames) + "; may be repeated (default: all but exact, f32, f16)")
      ->type_name("RUNG")
      ->take_all();
  app->add_option("--rows", a->rows,
                  "Rows sampled in each head, spread evenly; 0: all (default 32)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20).description(""));
  app->add_option("--rtol", a->rtol, "Relative tolerance (default 0.005)")->type_name("X");
  app->add_option("--atol", a->atol, "Absolute tolerance (default 0.005)")->type_name("X");
  app->add_option("--html", a->html,
                  "Also write a page (HTML): rungs, advice, a plot and its numbers")
      ->type_name("FILE");
  app->add_option("--fail-above", a->fail_above,
                  "Exit code 3 if more than this percentage of a rung's elements fail")
      ->type_name("PERCENT");
  app->add_option("--threads", a->threads,
                  "Maximum number of threads (default 0: every core, or OCTAVO_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxThreads).description(""));
  return {app, [a, &globals] { return run_report(*a, globals); }};
}

}  // namespace octavo::cli
