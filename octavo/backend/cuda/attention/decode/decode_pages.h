// K and V in pages, brought together for kernels that do not read block tables.
#pragma once

#include <optional>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

// Keys of a page outside the pool are NaN. Memory of the call, released in stream order.
class GatheredPages {
 public:
  GatheredPages(const Exec& exec, const AttentionJob& job);
  [[nodiscard]] const AttentionJob& job() const { return job_; }

 private:
  AttentionJob job_;
  std::optional<Scratch> keys_, values_, queries_;
};

}  // namespace octavo::cuda
