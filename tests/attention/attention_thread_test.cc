// Attention results do not depend on the number of threads, nor on memory layout.
#include <algorithm>

#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

constexpr std::array kRungs = {AttentionRung::f32,      AttentionRung::bf16,   AttentionRung::f16,
                               AttentionRung::balanced, AttentionRung::strict, AttentionRung::fast,
                               AttentionRung::automatic};

TEST(AttentionThread, AnyNumberGivesTheSameBits) {
  const Sizes sizes{
      .batches = 2, .heads = 2, .kv_heads = 1, .queries = 70, .keys = 130, .depth = 32};
  const Made made = make_inputs(sizes, Kind::normal, 3);
  for (const BackendInfo& backend : support::every_backend()) {
    if (support::is_staged(backend)) continue;
    for (const AttentionRung rung : kRungs) {
      const auto with = [&](int threads) {
        return attention(made.q, made.k, made.v,
                         {.rung = rung,
                          .mask = {.causal = true, .bottom_right = true},
                          .out = DType::f32,
                          .threads = threads,
                          .backend = backend.kernels});
      };
      const Tensor one = with(1);
      for (const int threads : {2, 3, 7})
        EXPECT_TRUE(std::ranges::equal(one.bytes(), with(threads).bytes()))
            << octavo::name_of(rung) << " on " << backend.name << ", " << threads << " threads";
    }
  }
}

// [B, S, H, D] seen as [B, H, S, D], as projections make it; and every other element of a wider
// row.
TEST(AttentionThread, AnyStrides) {
  const Sizes sizes{
      .batches = 2, .heads = 3, .kv_heads = 3, .queries = 40, .keys = 40, .depth = 32};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Made made = make_inputs(sizes, Kind::normal, 3, dtype);
    const auto moved = [&](const Tensor& from, bool gaps) {
      const Shape& shape = from.shape();
      const std::int64_t bytes = element_bytes(dtype), step = gaps ? 2 : 1;
      const Tensor memory = Tensor::values({shape[0], shape[2], shape[1], step * shape[3]}, dtype);
      std::ranges::fill(memory.bytes(), std::byte{0x7F});
      View view = memory.view();
      view.shape = shape;
      view.strides = {memory.view().strides[0], memory.view().strides[2], memory.view().strides[1],
                      step * bytes};
      for (std::int64_t b = 0; b < shape[0]; ++b)
        for (std::int64_t h = 0; h < shape[1]; ++h)
          for (std::int64_t s = 0; s < shape[2]; ++s)
            for (std::int64_t d = 0; d < shape[3]; ++d)
              std::memcpy(static_cast<std::byte*>(view.data) + b * view.strides[0] +
                              h * view.strides[1] + s * view.strides[2] + d * view.strides[3],
                          static_cast<const std::byte*>(from.view().data) +
                              (((b * shape[1] + h) * shape[2] + s) * shape[3] + d) * bytes,
                          static_cast<std::size_t>(bytes));
      return Tensor::adopt(view, memory.owner());
    };
    for (const BackendInfo& backend : support::every_backend()) {
      if (support::is_staged(backend)) continue;
      for (const AttentionRung rung : kRungs) {
        const AttentionOptions options{
            .rung = rung, .mask = {.causal = true}, .out = DType::f32, .backend = backend.kernels};
        const Tensor want = attention(made.q, made.k, made.v, options);
        for (const bool gaps : {false, true}) {
          const Tensor got = attention(moved(made.q, gaps).view(), moved(made.k, gaps).view(),
                                       moved(made.v, gaps).view(), options);
          EXPECT_TRUE(std::ranges::equal(want.bytes(), got.bytes()))
              << octavo::name_of(rung) << " on " << backend.name << ", " << dtype_name(dtype)
              << (gaps ? ", with gaps" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
