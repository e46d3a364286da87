// Attention whose instructions and addresses depend on shapes, masks and lengths alone, never on Q,
// K, V or their scales (AttentionJob::oblivious).
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

void attend_obliviously(const Isa& isa, const Exec& exec, const AttentionJob& job);
std::int64_t oblivious_attention_workspace(const Exec& exec, const AttentionJob& job);

}  // namespace octavo::cpu
