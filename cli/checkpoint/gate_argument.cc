#include "cli/checkpoint/gate_argument.h"

#include <algorithm>

#include "cli/text/names.h"

namespace octavo::cli {

std::vector<Gate> gate_arguments(const std::string& op, const std::vector<std::string>& typed) {
  std::vector<Gate> out;
  for (const std::string& one : typed) {
    try {
      out.push_back(parse_gate(one));
    } catch (const Error& error) {
      const std::vector<std::string> names = gate_metric_names();
      const std::string metric = gate_metric_typed(one);
      const bool known = one.find_first_of("<>") == std::string::npos ||
                         std::find(names.begin(), names.end(), metric) != names.end();
      throw UsageError(text('[', op, "] --fail-if: ", reason_of(error),
                            known ? "" : "." + did_you_mean(metric, names)));
    }
  }
  return out;
}

}  // namespace octavo::cli
