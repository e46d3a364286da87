// What a folder has besides weights: copies of the source's other files, the index, and, last of
// all, config.json with what the dialect and octavo (`words`) say in it. Each is made by one
// function, whether it is written or held against what is there.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "octavo/pipeline/output/output_folder_internal.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// `words` is asked when the rest is written: of many tensors there is little room for both.
void finish_folder(const CheckpointReader& source, const QuantizePlan& plan,
                   const std::function<Json()>& provenance, OutputFolder& folder);

// The same for a folder that is complete, whose weights have these sums: what is missing is written
// again, and its names are returned. Throws Error(io) for a file that is not what would be written.
[[nodiscard]] std::vector<std::string> repair_folder(const CheckpointReader& source,
                                                     const QuantizePlan& plan,
                                                     const std::function<Json()>& provenance,
                                                     const std::map<std::string, std::string>& sums,
                                                     const std::string& folder);

}  // namespace octavo
