// PlannedWeights: the weights that a plan quantizes, by the names of their modules, and their
// values as the pipeline reads them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "octavo/pipeline/plan/plan.h"
#include "octavo/pipeline/stream/window_internal.h"

namespace octavo::gptq_detail {

class PlannedWeights {
 public:
  PlannedWeights(const CheckpointReader& source, const QuantizePlan& plan);

  // Null where the plan leaves it alone, or it is a part of an expert stack.
  [[nodiscard]] const TensorAction* find(const std::string& module) const;
  // [N, K] in the type that it is stored in; valid until the next call. Throws Error that names the
  // tensor where there is NaN or Inf, unless the plan clamps them.
  [[nodiscard]] View read(const TensorAction& action);
  // The largest magnitude of it and of those that share its tensor scale.
  [[nodiscard]] float amax(const TensorAction& action);
  // Rows of a module's matrix in the checkpoint, planned or not.
  [[nodiscard]] std::int64_t rows_of(const std::string& module) const;
  // Planned weights that were never read: no Linear of a decoder layer has their name.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  [[nodiscard]] std::size_t index_of(const TensorAction& action) const;
  View read_all(std::size_t index, float& amax);

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  std::map<std::string, std::size_t> by_module_;
  std::map<std::size_t, float> amaxes_;  // by group, or by action beyond all groups
  std::set<std::size_t> read_;
  Window window_;
};

}  // namespace octavo::gptq_detail
