// The amaxes of groups that span files, in a shared run: of each file its members' part is found
// once, by one process, and recorded; a process that writes a file puts the parts together.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/output/shared_folder_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"

namespace octavo {

class SharedAmaxes {
 public:
  SharedAmaxes(const CheckpointReader& source, const QuantizePlan& plan,
               const SharedFolder& folder);

  // The record of a file's part, from its members' values.
  [[nodiscard]] Json find(std::size_t file, const QuantizeCheckpointOptions& options) const;
  // Of all groups the amax as far as this file is concerned, from the records: NaN where it has
  // none of a group's members, or all of them. Throws Error(io) for a record that cannot be read.
  [[nodiscard]] std::vector<float> of_groups(std::size_t file);

 private:
  using Part = std::vector<std::pair<std::size_t, float>>;  // group and amax
  [[nodiscard]] bool is_across(int group) const {
    return group >= 0 && across_[static_cast<std::size_t>(group)];
  }
  [[nodiscard]] Part read(std::size_t file) const;

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  const SharedFolder& folder_;
  std::vector<bool> across_;                     // by group: has it members in several files?
  std::vector<std::vector<std::size_t>> needs_;  // by file: those with members of its groups
  std::map<std::size_t, Part> parts_;            // that were read
};

}  // namespace octavo
