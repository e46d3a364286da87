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

// A weight that GPTQ quantizes where a layer has a Linear of its name: a matrix of values, whole.
[[nodiscard]] bool is_by_gptq(const TensorAction& action);

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
  // What the plan's policy weighs the errors of its columns by; empty for other policies than wmse.
  [[nodiscard]] std::vector<float> column_weights(const TensorAction& action) const;
  // Reads all planned weights once, in pieces. Throws what read() throws.
  void check_values();
  // Rows of a module's matrix in the checkpoint, planned or not.
  [[nodiscard]] std::int64_t rows_of(const std::string& module) const;
  // Planned weights that were never read: no Linear of a decoder layer has their name.
  [[nodiscard]] std::vector<std::string> unread() const;

 private:
  [[nodiscard]] std::size_t index_of(const TensorAction& action) const;
  float amax_of(std::size_t index);
  View read_rows(std::size_t index, std::int64_t first, std::int64_t count, float& amax);

  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  std::map<std::string, std::size_t> by_module_;
  std::map<std::size_t, float> amaxes_;  // by action
  std::set<std::size_t> read_;
  Window window_;
};

}  // namespace octavo::gptq_detail
