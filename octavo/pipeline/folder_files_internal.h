// What a folder has besides weights: copies of the source's other files, the index, and, last of
// all, config.json with what the dialect and octavo (`words`) say in it.
#pragma once

#include <functional>

#include "octavo/pipeline/output_folder_internal.h"
#include "octavo/pipeline/plan.h"

namespace octavo {

// `words` is asked when the rest is written: of many tensors there is little room for both.
void finish_folder(const CheckpointReader& source, const QuantizePlan& plan,
                   const std::function<Json()>& words, OutputFolder& folder);

}  // namespace octavo
