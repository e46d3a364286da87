// Attention in plain C++ loops that compilers vectorise, with the f32 GEMM microkernel.
#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_softmax.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"

namespace octavo::cpu::portable {
namespace {

constexpr AttentionMethod kF32{.name = "f32",
                               .score = kTile,
                               .weigh = kTile,
                               .softmax = softmax_f32<kTile.cols>,
                               .sums_weight_squares = true,
                               .tile_keys = 32};

}  // namespace

const AttentionMethod* attention_method(const AttentionJob& job) {
  return is_fast_attention(job) ? &kF32 : nullptr;
}

}  // namespace octavo::cpu::portable
