// What the files of this folder share.
#pragma once

#include "octavo/backend/cpu/span.h"

namespace octavo::cpu {

// From bf16 only. Null for any other format or source, and for stochastic rounding.
EncodeSpan neon_fp16_encode_e5m2(const Encoder& encoder);

// MX kernels in lanes of sixteen bits; null where those do not do.
MxRows neon_fp16_mx_rows(const MxBlocks& blocks);
MxStripSpan neon_fp16_mx_strip(const MxBlocks& blocks);

}  // namespace octavo::cpu
