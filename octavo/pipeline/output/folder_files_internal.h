// The non-weight files of an output folder: copies of the source's other files, the index, and last
// config.json with the dialect's quantization_config and octavo's provenance. One function per file
// makes its content, both for writing and for comparing.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// `provenance` is called after the rest is written: with many tensors memory does not hold both.
void write_folder_files(const CheckpointReader& source, const QuantizePlan& plan,
                        const std::function<Json()>& provenance,
                        const std::map<std::string, std::string>& sums, const std::string& folder);

// The same for a complete folder whose weight files have these checksums: rewrites missing files
// and returns their names. Throws Error(io) for a file that differs from what would be written.
[[nodiscard]] std::vector<std::string> repair_folder(const CheckpointReader& source,
                                                     const QuantizePlan& plan,
                                                     const std::function<Json()>& provenance,
                                                     const std::map<std::string, std::string>& sums,
                                                     const std::string& folder);

}  // namespace octavo
