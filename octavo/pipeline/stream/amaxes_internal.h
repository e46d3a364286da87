// The amax pass: the amax of every weight that has one scale for the whole, before codes are made.
#pragma once

#include <mutex>
#include <vector>

#include "octavo/pipeline/stream/window_internal.h"

namespace octavo {

// Does quantizing it need the amax of the whole weight?
[[nodiscard]] bool needs_amax(const TensorAction& action);

class Amaxes {
 public:
  Amaxes(const CheckpointReader& source, const QuantizePlan& plan)
      : source_(source), plan_(plan), amaxes_(plan.actions.size(), 0.0F) {}

  // Reads a row block. From any thread.
  void look_at(Window& window, const RowBlock& row_block);
  // After the last one: members of a group get the group's largest, or the `given` one where that
  // is a number.
  void share(const std::vector<float>* given = nullptr);
  [[nodiscard]] float of(std::size_t action) const { return amaxes_[action]; }
  // For each group the largest of its members.
  [[nodiscard]] std::vector<float> of_groups() const;

 private:
  const CheckpointReader& source_;
  const QuantizePlan& plan_;
  std::vector<float> amaxes_;
  std::mutex merging_;
};

}  // namespace octavo
