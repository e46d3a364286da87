// What config.json says octavo did, under "octavo": how a checkpoint was quantized, from what, and
// what was done with it since. Nothing in it says when, so that the same work gives the same bytes.
//   {"version": ..., "recipe": ..., ..., "source_hash": ...,     of quantizing
//    "scalings": [...],                                          all of them, without loss
//    "stacks": [...],                                            experts that were taken apart
//    "steps": [{"version": ..., "work": "convert to modelopt", "source_hash": ...}],
//    "sums": {"model.safetensors": ...}}                         of the files' data,
//    data_checksum()
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

using Provenance = std::vector<std::pair<std::string, std::string>>;

// Of quantizing: `said`, and the stacks that the plan takes apart. A source that octavo made keeps
// its own words under "from".
[[nodiscard]] Json quantize_provenance(const CheckpointReader& source, const QuantizePlan& plan,
                                       const Provenance& said);

// Of converting or dequantizing: the source's words, and one step more.
[[nodiscard]] Json step_provenance(const CheckpointReader& source, const QuantizePlan& plan,
                                   const std::string& work, const std::string& source_hash);

// How weights were quantized is more than their spelling says (the rule of their scales, the
// policy): it is taken from the source's words where those have one scaling that reads the same.
// For each weight, whether it is known now; octavo's own files have it whole.
std::vector<bool> restore_scalings(const CheckpointReader& source, Recognized& recognized);

// Turns actions of a plan that dequantizes into stacks again, where the source's words say that
// their weights came from one and all of them are there. What does not fit is left apart, with a
// note: the words come from a file.
void merge_experts(const CheckpointReader& source, QuantizePlan& plan,
                   std::vector<std::string>& notes);

}  // namespace octavo
