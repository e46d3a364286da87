// octavo generate: text from a model, token by token.

#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/model/activations.h"
#include "cli/terminal/shown_text.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/number_text.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/base/thread_pool.h"
#include "octavo/model/generate.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo generate model/ --prompt "Once upon a time"      greedy: always the most likely token
  octavo generate model/ --prompt "Once" --temperature 0.8 --top-p 0.95 --seed 7
  octavo generate model.gguf --prompt "def fib(n):" --max-tokens 200
  octavo generate model/ --ids 1,450,4996 --json          tokens in, tokens out: no tokenizer needed

Runs decoders of the Llama, Mistral, Qwen, Gemma, Phi-3 and gpt-oss families on the CPU, from
safetensors or GGUF, quantized in any way that octavo reads; activations are quantized as a server
would. Text goes to stdout as it comes, tokens a second to stderr.)";

struct Arguments {
  std::string input, prompt, ids, cache = "float32", activations;
  bool has_prompt = false;
  GenerateOptions options{};
};

std::vector<std::int32_t> parse_ids(const std::string& list) {
  std::vector<std::int32_t> out;
  const char *at = list.data(), *const end = at + list.size();
  while (at != end) {
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || (next != end && *next != ',') || next + 1 == end)
      throw UsageError(text("[generate] got --ids '", shown(list),
                            "'; expected token numbers with commas between them: 1,450,4996"));
    out.push_back(id);
    at = next == end ? end : next + 1;
  }
  return out;
}

KvCacheOptions cache_options(const std::string& name) {
  if (name == "fp8") return {};
  if (name == "bfloat16" || name == "bf16") return {.values = DType::bf16};
  if (name == "float32" || name == "f32") return {.values = DType::f32};
  throw UsageError(
      text("[generate] --cache: got '", shown(name), "'; expected float32, bfloat16 or fp8"));
}

double per_second(std::int64_t tokens, double seconds) {
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

std::string json_of(const GenerateResult& result, std::size_t prompt_tokens,
                    const std::optional<std::string>& written) {
  Json ids = Json::array();
  for (const std::int32_t id : result.ids) ids.push(id);
  const auto tokens = static_cast<std::int64_t>(result.ids.size());
  Json out = Json::object({{"prompt_tokens", prompt_tokens}, {"ids", std::move(ids)}});
  if (written) out.set("text", *written);
  out.set("ended", result.at_eos ? "eos" : "length");
  out.set("prompt_seconds", result.prompt_seconds);
  out.set("seconds", result.seconds);
  out.set("tokens_per_second", per_second(tokens, result.seconds));
  return out.dump() + "\n";
}

void say_speed(const GenerateResult& result, std::size_t prompt_tokens) {
  say(formatted("octavo: [generate] {} of prompt at {:.1f} a second, {} more at {:.1f} a second",
                counted(prompt_tokens, "token"),
                per_second(static_cast<std::int64_t>(prompt_tokens), result.prompt_seconds),
                counted(result.ids.size(), "token"),
                per_second(static_cast<std::int64_t>(result.ids.size()), result.seconds)));
}

int run_generate(const Arguments& arguments, const Globals& globals) {
  if (arguments.has_prompt == !arguments.ids.empty())
    throw UsageError("[generate] got " +
                     std::string(arguments.has_prompt ? "both --prompt and --ids"
                                                      : "neither --prompt nor --ids") +
                     "; give one of them");
  check_model("generate", arguments.input);
  GenerateOptions options = arguments.options;
  options.cache = cache_options(arguments.cache);
  std::vector<std::int32_t> ids = parse_ids(arguments.ids);
  const Decoder model(arguments.input,
                      {.activations = activations_of("generate", arguments.activations),
                       .threads = options.run.threads});
  std::optional<Tokenizer> tokenizer;
  std::optional<Tokenizer::Stream> stream;
  if (arguments.has_prompt) {
    tokenizer = model.files().load_tokenizer();
    stream.emplace(*tokenizer);
    ids = tokenizer->encode(arguments.prompt);
  }
  // Bytes for a program, but nothing that a terminal would obey.
  const bool is_for_people = is_terminal(stdout);
  const auto give = [&](const std::string& written) {
    print(is_for_people ? shown_text(written) : written);
  };
  bool any = false;
  options.on_token = [&](std::int32_t id) {
    if (globals.json) return true;
    give(stream ? stream->put(id) : any ? text(",", id) : text(id));
    std::fflush(stdout);
    any = true;
    return true;
  };
  const GenerateResult result = generate(model, ids, options);
  if (globals.json) {
    print(json_of(result, ids.size(),
                  tokenizer ? std::optional(tokenizer->decode(result.ids)) : std::nullopt));
  } else {
    give((stream ? stream->finish() : std::string()) + "\n");
  }
  say_speed(result, ids.size());
  return kGood;
}

}  // namespace

Command add_generate(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "generate",
                                 "Write text with a model, token by token", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->input, "A folder, a .safetensors or a .gguf file")
      ->required()
      ->type_name("");
  CLI::Option* prompt =
      app->add_option("--prompt", arguments->prompt, "The text to go on from")->type_name("TEXT");
  app->add_option("--ids", arguments->ids,
                  "The same as token numbers: 1,450,4996; then the output "
                  "is numbers, too")
      ->type_name("LIST");
  app->add_option("--max-tokens", arguments->options.max_tokens,
                  "Maximum number of new tokens (default 128)")
      ->type_name("N");
  Sampling& sampling = arguments->options.sampling;
  app->add_option("--temperature", sampling.temperature,
                  "Draw tokens by their probability, logits divided by T (default 0: greedy)")
      ->type_name("T");
  app->add_option("--top-k", sampling.top_k, "Of the K most likely tokens (default 0: of all)")
      ->type_name("K");
  app->add_option("--top-p", sampling.top_p,
                  "Of the fewest most likely tokens that have this probability (default 1)")
      ->type_name("P");
  app->add_option("--seed", sampling.seed, "Of the draws (default 0)")->type_name("N");
  add_activations_option(*app, arguments->activations);
  app->add_option("--cache", arguments->cache,
                  "What keys and values are kept as: float32 (default), bfloat16, fp8")
      ->type_name("TYPE");
  app->add_option("--threads", arguments->options.run.threads,
                  "Maximum number of threads (default 0: every core, or OCTAVO_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxThreads).description(""));
  return {app, [arguments, prompt, &globals] {
            arguments->has_prompt = prompt->count() > 0;
            return run_generate(*arguments, globals);
          }};
}

}  // namespace octavo::cli
