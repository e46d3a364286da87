#include "cli/model/text_arguments.h"

#include "cli/command.h"
#include "cli/text/size_argument.h"
#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

namespace octavo::cli {

void add_calibration_options(CLI::App& app, TextArguments& arguments) {
  const auto repeated = [&](const char* name, std::vector<std::string>& into, const char* help) {
    app.add_option(name, into, help)
        ->type_name("FILE")
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
  };
  repeated("--text", arguments.texts, "A text (UTF-8); may be repeated");
  repeated("--ids", arguments.ids,
           "Ids of tokens instead of a text, as JSON or numbers with white space between");
  app.add_option("--window", arguments.window,
                 "Tokens that see each other (default 2048, or what the model can take)")
      ->type_name("N")
      ->check(CLI::Range(2, 1 << 30).description(""));
  app.add_option("--tokens", arguments.tokens, "Read the first N tokens of each text (default all)")
      ->type_name("N")
      ->check(CLI::Range(2, 1 << 30).description(""));
  app.add_option("--temporary", arguments.temporary,
                 "Folder for hidden states that memory has no room for")
      ->type_name("FOLDER");
}

void add_text_options(CLI::App& app, TextArguments& arguments) {
  add_calibration_options(app, arguments);
  app.add_option("--max-memory", arguments.max_memory,
                 "Memory to stay within, such as 1GiB (default 4GiB); no number depends on it")
      ->type_name("SIZE");
  app.add_option("--threads", arguments.threads,
                 "Maximum number of threads (default 0: every core, or OCTAVO_THREADS)")
      ->type_name("N")
      ->check(CLI::Range(0, kMaxThreads).description(""));
}

std::vector<EvalText> read_texts(const std::string& op, const TextArguments& arguments) {
  if (arguments.texts.empty() && arguments.ids.empty())
    throw UsageError(text('[', op,
                          "] got no --text; expected a text to run the model on, or --ids "
                          "with the ids of its tokens"));
  std::vector<EvalText> out;
  for (const std::string& path : arguments.texts) out.push_back(read_text_file(op, path));
  for (const std::string& path : arguments.ids) out.push_back(read_ids_file(op, path));
  return out;
}

std::uint64_t max_memory_of(const std::string& op, const TextArguments& arguments,
                            std::uint64_t otherwise) {
  if (arguments.max_memory.empty()) return otherwise;
  return memory_argument(text('[', op, "] --max-memory:"), arguments.max_memory);
}

}  // namespace octavo::cli
