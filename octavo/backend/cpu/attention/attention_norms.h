// The choice of an attention method for a head: norms of its queries and keys bound the errors of
// scores.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

struct HeadMethod {
  const AttentionMethod* method;
  double random_walk;  // standard deviation of score errors (random walk)
};
// The first method of the chain from `method` on that is precise enough for KV head `kv`, counted
// over all batches.
HeadMethod method_for(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                      const AttentionJob& job, std::int64_t kv);

}  // namespace octavo::cpu
