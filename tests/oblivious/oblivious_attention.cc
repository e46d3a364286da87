// Data-oblivious check of attention under valgrind: Q, K and V are hidden.
#include "checker.h"
#include "octavo/base/error.h"
#include "octavo/ops/attention/attention.h"

namespace octavo::oblivious {
namespace {

struct Size {
  std::int64_t queries, keys, depth;
};
constexpr Size kSizes[] = {{1, 200, 64}, {30, 70, 32}, {100, 130, 64}};

void check_one(Checker& checker, const Kernels& kernels, AttentionRung rung, const char* name,
               const Size& size, bool causal) {
  const HiddenOperand q(name, {1, 2, size.queries, size.depth}),
      k(name, {1, 1, size.keys, size.depth}), v(name, {1, 1, size.keys, size.depth});
  const Tensor out = Tensor::values({1, 2, size.queries, size.depth}, DType::f32);
  std::vector<Checker::Bytes> inputs;
  for (const HiddenOperand* operand : {&q, &k, &v}) operand->add_to(inputs);
  std::uint64_t seed = 4;
  for (const Checker::Bytes input : inputs) fill(input, seed++);
  checker.judge(text(kernels.name, ": attention ", name_of(rung), " of ", name, ", ", size.queries,
                     " x ", size.keys, " x ", size.depth, causal ? ", causal" : ""),
                inputs, {bytes_of(out)}, [&] {
                  attention_into(q.operand(), k.operand(), v.operand(), out.view(),
                                 {.rung = rung,
                                  .mask = {.causal = causal},
                                  .oblivious = true,
                                  .threads = 1,
                                  .backend = &kernels});
                });
}

}  // namespace

void check_attention(Checker& checker, const Kernels& kernels) {
  if (kernels.attention == nullptr) return;
  for (const Size& size : kSizes)
    for (const bool causal : {false, true}) {
      for (const char* name : {"float32", "bfloat16", "float16"})
        for (const AttentionRung rung :
             {AttentionRung::f32, AttentionRung::bf16, AttentionRung::f16, AttentionRung::strict,
              AttentionRung::balanced, AttentionRung::fast})
          check_one(checker, kernels, rung, name, size, causal);
      for (const char* name : {"fp8-channel", "mxfp8"})
        for (const AttentionRung rung : {AttentionRung::bf16, AttentionRung::strict})
          check_one(checker, kernels, rung, name, size, causal);
    }
}

}  // namespace octavo::oblivious
