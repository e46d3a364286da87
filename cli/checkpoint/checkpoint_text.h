// Reports and plans of checkpoints as text tables. The library makes the JSON.
#pragma once

#include <string>
#include <vector>

#include "octavo/pipeline/plan/plan.h"
#include "octavo/report/checkpoint_report.h"
#include "octavo/report/gate.h"

namespace octavo::cli {

// Size before and after, bits per weight, the worst tensors, notes.
std::string summary_text(const CheckpointReport& report);

std::string plan_text(const CheckpointReader& source, const QuantizePlan& plan);

// One line per note; repeated ones are limited.
std::string notes_text(const std::vector<std::string>& notes);

// Prints on stderr which limits are missed, and by which tensor; true if any is.
bool misses_gates(std::string_view op, const CheckpointReport& report,
                  const std::vector<Gate>& gates);

// The final message on stderr: "wrote out", or that it was complete, and what was rewritten.
void say_written(std::string_view op, const std::string& output, bool was_complete,
                 const std::vector<std::string>& written_again);

}  // namespace octavo::cli
