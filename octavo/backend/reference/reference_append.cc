// Reference append to a KV cache, by the definition in append_job.h.
#include <algorithm>
#include <cstring>

#include "octavo/backend/append_job.h"
#include "octavo/backend/reference/reference_internal.h"

namespace octavo::reference {

void append_tokens(const Exec&, const AppendJob& job) {
  for (std::int64_t batch = 0; batch < job.batches; ++batch) {
    const std::int64_t length = job.lengths[batch],
                       wanted = job.counts != nullptr ? job.counts[batch] : job.tokens,
                       count = std::clamp<std::int64_t>(job.capacity - length, 0, wanted);
    for (int part = 0; part < job.part_count; ++part) {
      const AppendRows& rows = job.parts[part];
      for (std::int64_t head = 0; head < job.heads; ++head)
        for (std::int64_t i = 0; i < count; ++i) {
          std::byte* const to = place_of_token(job, rows, batch, head, length + i);
          if (to != nullptr)
            std::memcpy(
                to, rows.from + batch * rows.from_batch + head * rows.from_head + i * rows.from_row,
                static_cast<std::size_t>(rows.bytes));
        }
    }
    job.lengths[batch] += count;
  }
}

}  // namespace octavo::reference
