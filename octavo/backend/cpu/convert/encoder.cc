#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

Encoder make_encoder(const Format& format, const EncodePolicy& policy, DType source) {
  const EncodeEdges edges = encode_edges(format, policy);
  return {.format = format,
          .policy = policy,
          .source = source,
          .overflow_field = edges.overflow_field,
          .inf_code = edges.inf_code,
          .nan_code = edges.nan_code};
}

}  // namespace octavo::cpu
