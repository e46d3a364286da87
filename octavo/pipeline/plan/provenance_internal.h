// Provenance: the key "octavo" of config.json, which records how a checkpoint was quantized, from
// what, and what was done with it since. It has no timestamps, so that the same work gives the same
// bytes.
//   {"version": ..., "recipe": ..., ..., "source_hash": ..., "source_sample": ...,   of quantizing
//    "scalings": [...],                                          all of them, lossless
//    "stacks": [...],                                            expert stacks that were split
//    "steps": [{"version": ..., "work": "convert to modelopt", "source_hash": ..., ...}],
//    "sums": {"model.safetensors": ...}}                         checksums of the files' data
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

using Provenance = std::vector<std::pair<std::string, std::string>>;

// The provenance of quantizing: `said`, and the stacks that the plan splits. The provenance of a
// source that octavo made is kept under "from".
[[nodiscard]] Json quantize_provenance(const CheckpointReader& source, const QuantizePlan& plan,
                                       const Provenance& said);

// The provenance of converting or dequantizing: the source's, plus one step.
[[nodiscard]] Json step_provenance(const CheckpointReader& source, const QuantizePlan& plan,
                                   const std::string& work, const std::string& source_hash,
                                   const std::string& source_sample);

// A dialect does not record everything about a scaling (the scale rule, the policy): it is restored
// from the source's provenance where exactly one recorded scaling fits. Returns for each weight
// whether its scaling is known now; octavo's own files record it completely.
std::vector<bool> restore_scalings(const CheckpointReader& source, Recognized& recognized);

// Merges the actions of a dequantizing plan into expert stacks, where the source's provenance
// records that their weights came from one and all of them are present. What does not fit stays
// split, with a note: the provenance is untrusted.
void merge_experts(const CheckpointReader& source, QuantizePlan& plan,
                   std::vector<std::string>& notes);

}  // namespace octavo
