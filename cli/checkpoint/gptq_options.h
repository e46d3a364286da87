// --method gptq of octavo quantize, and what it calibrates by.
#pragma once

#include <optional>
#include <string>

#include "cli/model/text_arguments.h"
#include "octavo/model/gptq/gptq_checkpoint.h"

namespace CLI {
class App;
}

namespace octavo::cli {

// As typed.
struct GptqArguments {
  std::string method = "rtn";
  std::optional<std::string> order{};
  std::optional<double> damping{};
  TextArguments text{};
};

void add_gptq_options(CLI::App& app, GptqArguments& arguments);

// How GPTQ calibrates, with its texts; nothing where values are rounded to nearest. Throws
// UsageError for options that the method does not have, and where there is no text.
std::optional<GptqCalibration> gptq_calibration(const GptqArguments& arguments);

}  // namespace octavo::cli
