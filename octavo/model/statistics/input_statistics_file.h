// open_input_statistics: a file of statistics (statistics_file.h, or an imatrix) as
// quantize_checkpoint takes it.
//   quantize_checkpoint("model/", "out/", {.plan = {.recipe = "nvfp4", .scale_policy = "wmse",
//     .statistics = open_input_statistics("stats.safetensors", "model/")}});
#pragma once

#include <memory>
#include <string>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/input_statistics.h"

namespace octavo {

// Throws Error where the file cannot be read, or is another model's than `model`. `deleted_shards`:
// as CheckpointReader has it, where shards of the model may be deleted (option delete_source).
[[nodiscard]] OCTAVO_API std::shared_ptr<const InputStatistics> open_input_statistics(
    const std::string& path, const std::string& model, const std::string& deleted_shards = {});

}  // namespace octavo
