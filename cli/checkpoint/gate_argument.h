// --fail-if 'cosine<0.999', as typed.
#pragma once

#include <string>
#include <vector>

#include "octavo/report/gate.h"

namespace octavo::cli {

// Throws UsageError that suggests the nearest metric.
std::vector<Gate> gate_arguments(const std::string& op, const std::vector<std::string>& typed);

}  // namespace octavo::cli
