// Shared by the writer and the reader of plan files.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/plan/file/plan_file.h"

namespace octavo {

inline constexpr int kPlanFileVersion = 1;
// A model of 100 000 tensors has a plan of 60 MB.
inline constexpr std::uint64_t kMaxPlanFileBytes = 1ULL << 30;

// All options, by name, but for statistics: of those the content counts, wherever they lie.
[[nodiscard]] Json options_json(const QuantizePlanOptions& options);

// A hash of what the bytes of the folder depend on, wherever source and plan lie.
[[nodiscard]] std::string plan_identity(const PlanFile& file, const QuantizePlan& plan);

}  // namespace octavo
