// Cases of oblivious_trace: products, norms, activations, RoPE, attention and KV decode.
#include <array>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/nn/kv_cache.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/attention/attention.h"
#include "octavo/ops/norm.h"
#include "octavo/ops/packed_weights.h"
#include "octavo/ops/rope.h"
#include "octavo/quant/quantize.h"
#include "trace_cases.h"

namespace octavo::oblivious {
namespace {

constexpr std::int64_t kCols = 33, kDepth = 96;

void fill_from(const std::vector<std::uint8_t>& input, std::span<std::uint8_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = input[i % input.size()];
}

std::shared_ptr<HiddenOperand> hidden(const char* name, const Shape& shape) {
  return std::make_shared<HiddenOperand>(name, shape);
}

}  // namespace

// Filling is outside of nothing: it takes the same instructions for every input.
void TraceCases::add_with(const std::string& name, const Operands& operands,
                          const std::function<void()>& run) {
  add(name, [=, this] {
    std::vector<std::span<std::uint8_t>> all;
    for (const auto& operand : operands) operand->add_to(all);
    for (const std::span<std::uint8_t> bytes : all) fill_from(buffers_.input, bytes);
    run();
  });
}

void TraceCases::add_product(const char* a_name, const char* b_name, std::int64_t rows) {
  const auto a = hidden(a_name, {rows, kDepth}), b = hidden(b_name, {kCols, kDepth});
  const Tensor out = Tensor::values({rows, kCols}, DType::f32);
  add_with(text("product ", a_name, " by ", b_name, ", ", rows, " rows"), {a, b}, [=, this] {
    gemm_into(a->operand(), b->operand(), out.view(),
              {.oblivious = true, .threads = 1, .backend = &kernels_});
  });
}

// Weights are packed before: their bytes are filled in panels.
void TraceCases::add_packed(const char* a_name, const char* b_name, std::int64_t rows) {
  const auto a = hidden(a_name, {rows, kDepth}), b = hidden(b_name, {kCols, kDepth});
  for (const Tensor* tensor : {&b->codes.rowwise.scales, &b->codes.rowwise.tensor_scale})
    if (tensor->owner() != nullptr) std::memset(tensor->bytes().data(), 0, tensor->bytes().size());
  const auto packed =
      std::make_shared<PackedWeights>(pack(b->operand(), {.threads = 1, .backend = &kernels_}));
  const Tensor out = Tensor::values({rows, kCols}, DType::f32);
  add_with(text("product ", a_name, " by packed ", b_name, ", ", rows, " rows"), {a}, [=, this] {
    for (const Tensor* tensor : {&packed->elements, &packed->scales, &packed->tensor_scale})
      if (tensor->owner() != nullptr) fill_from(buffers_.input, bytes_of(*tensor));
    gemm_into(a->operand(), *packed, out.view(),
              {.oblivious = true, .threads = 1, .backend = &kernels_});
  });
}

void TraceCases::add_grouped(const char* name) {
  static constexpr std::array<std::int64_t, 3> kRows{1, 0, 6};
  const auto a = hidden(name, {7, kDepth}), b = hidden(name, {3, kCols, kDepth});
  const Tensor out = Tensor::values({7, kCols}, DType::f32);
  add_with(text("grouped product of ", name), {a, b}, [=, this] {
    gemm_grouped_into(a->operand(), b->operand(), kRows, out.view(),
                      {.oblivious = true, .threads = 1, .backend = &kernels_});
  });
}

void TraceCases::add_products() {
  for (const std::int64_t rows : {1, 2, 3, 4, 7, 8, 12, 16, 24}) {
    for (const char* name : {"float32", "bfloat16", "float16", "fp8", "fp8-channel", "mxfp8",
                             "mxfp4", "nvfp4", "int8-channel"})
      add_product(name, name, rows);
    for (const char* name : {"int4", "int8-channel", "fp8", "mxfp4"})
      add_product("bfloat16", name, rows);
    add_product("fp8-1x128", "fp8-block", rows);
  }
  for (const std::int64_t rows : {1, 5, 16, 40})
    for (const char* name : {"bfloat16", "fp8-channel", "mxfp8", "mxfp4"})
      add_packed("bfloat16", name, rows);
  for (const char* name : {"float32", "fp8", "mxfp4", "int8-channel"}) add_grouped(name);
}

void TraceCases::add_operations() {
  const Shape shape{2, 75};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const char* const name = dtype_name(dtype).data();
    const auto x = hidden(name, shape), weight = hidden(name, {shape[1]}),
               pair = hidden(name, {shape[0], 2 * shape[1]});
    const Tensor out = Tensor::values(shape, dtype);
    const ProduceOptions options{.threads = 1, .backend = &kernels_};
    add_with(text("layer norm ", name), {x, weight}, [=] {
      produce_into(produced(x->values.view(), LayerNorm{.weight = weight->values.view()}),
                   out.view(), options);
    });
    add_with(text("RMS norm ", name), {x, weight}, [=] {
      produce_into(produced(x->values.view(), RmsNorm{.weight = weight->values.view()}), out.view(),
                   options);
    });
    for (const ActivationKind kind : {ActivationKind::gelu, ActivationKind::gelu_tanh,
                                      ActivationKind::relu, ActivationKind::silu})
      for (const bool gated : {false, true})
        add_with(text("activation ", static_cast<int>(kind), gated ? ", gated, " : ", ", name),
                 {gated ? pair : x}, [=] {
                   produce_into(produced((gated ? pair : x)->values.view(),
                                         Activation{.kind = kind, .gated = gated}),
                                out.view(), options);
                 });
    if (dtype == DType::f16) continue;
    const auto heads = hidden(name, {3, 2, 32});
    const Tensor turned = Tensor::values({3, 2, 32}, dtype),
                 frequencies = Tensor::values({16}, DType::f32);
    for (std::size_t i = 0; i < 16; ++i)
      frequencies.span<float>()[i] = 1.0F / static_cast<float>(1 + i * i);
    add_with(text("RoPE ", name), {heads}, [=, this] {
      rope_into(heads->values.view(),
                {.inverse_frequencies = frequencies.view(), .first_position = 9}, turned.view(),
                {.threads = 1, .backend = &kernels_});
    });
  }
}

// Codes as `append` has left them; their bytes are filled.
void TraceCases::add_decode(const char* name, std::int64_t queries) {
  constexpr std::int64_t kKeys = 20, kSize = 32;
  const auto tokens = hidden("bfloat16", {1, 1, kKeys, kSize});
  std::memset(tokens->values.bytes().data(), 0, tokens->values.bytes().size());
  const auto cache = std::make_shared<KvCache>(
      1, 1, kSize, kSize, KvCacheOptions{.k = preset(name), .v = preset(name), .capacity = 32});
  cache->append(tokens->values.view(), tokens->values.view());
  const auto q = hidden("bfloat16", {1, 2, queries, kSize});
  const Tensor out = Tensor::values({1, 2, queries, kSize}, DType::f32);
  add_with(text("KV decode of ", name, ", ", queries, " queries"), {q}, [=, this] {
    for (const QuantizedTensor* side : {&cache->keys(), &cache->values()})
      for (const Tensor* tensor : {&side->rowwise.codes, &side->rowwise.scales})
        fill_from(buffers_.input, bytes_of(*tensor));
    cache->attend_into(
        q->operand(), out.view(),
        {.rung = AttentionRung::bf16, .oblivious = true, .threads = 1, .backend = &kernels_});
  });
}

void TraceCases::add_attention() {
  constexpr std::int64_t kQueries = 5, kKeys = 20, kSize = 32;
  for (const char* name : {"float32", "bfloat16", "float16", "fp8-channel", "mxfp8"}) {
    const auto q = hidden(name, {1, 1, kQueries, kSize}), k = hidden(name, {1, 1, kKeys, kSize}),
               v = hidden(name, {1, 1, kKeys, kSize});
    const Tensor out = Tensor::values({1, 1, kQueries, kSize}, DType::f32);
    const bool is_codes = q->codes.rowwise.exists();
    for (const AttentionRung rung : {AttentionRung::f32, AttentionRung::bf16, AttentionRung::f16,
                                     AttentionRung::strict, AttentionRung::fast}) {
      if (is_codes && rung != AttentionRung::bf16 && rung != AttentionRung::strict) continue;
      add_with(text("attention ", name_of(rung), " of ", name), {q, k, v}, [=, this] {
        attention_into(q->operand(), k->operand(), v->operand(), out.view(),
                       {.rung = rung,
                        .mask = {.causal = rung == AttentionRung::bf16},
                        .oblivious = true,
                        .threads = 1,
                        .backend = &kernels_});
      });
    }
  }
  for (const char* name : {"fp8-channel", "mxfp8", "int8-channel"})
    for (const std::int64_t queries : {1, 3}) add_decode(name, queries);
}

}  // namespace octavo::oblivious
