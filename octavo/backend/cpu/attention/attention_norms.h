// Which of a line of methods takes a head: norms of its queries and keys say how far scores may be
// off.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

struct HeadMethod {
  const AttentionMethod* method;
  double random_walk;  // the deviation of its scores, whatever they are
};
// The first one, beginning with `method`, that is not too coarse for head `kv` of keys, of all
// batches.
HeadMethod method_for(const Isa& isa, const AttentionMethod& method, const Exec& exec,
                      const AttentionJob& job, std::int64_t kv);

}  // namespace octavo::cpu
