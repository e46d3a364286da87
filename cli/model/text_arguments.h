// Texts and limits that commands which run a model over data have in common: eval and calibrate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/model/eval/eval_text.h"

namespace CLI {
class App;
}

namespace octavo::cli {

struct TextArguments {
  std::vector<std::string> texts, ids;
  std::int64_t window = 0, tokens = 0;
  std::string max_memory, temporary;
  int threads = 0;
};

void add_text_options(CLI::App& app, TextArguments& arguments);
// The same without --max-memory and --threads, which a command may have for other work, too.
void add_calibration_options(CLI::App& app, TextArguments& arguments);

// All texts, those of --text first. Throws UsageError where there is none.
std::vector<EvalText> read_texts(const std::string& op, const TextArguments& arguments);
// --max-memory, or `otherwise`.
std::uint64_t max_memory_of(const std::string& op, const TextArguments& arguments,
                            std::uint64_t otherwise);

}  // namespace octavo::cli
