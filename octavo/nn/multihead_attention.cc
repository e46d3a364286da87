#include "octavo/nn/multihead_attention.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/ops/attention/attention.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "MultiheadAttention";

// Heads [first, first + count) of rows of [tokens, heads * size], as [batch, tokens, heads, size].
View heads_of(const Tensor& rows, std::int64_t batch, std::int64_t size, std::int64_t first,
              std::int64_t count) {
  const View& all = rows.view();
  const std::int64_t width = element_bytes(all.dtype), pitch = all.strides[0];
  const std::int64_t tokens = all.shape[0] / batch;
  View out = all;
  out.data = static_cast<std::byte*>(all.data) + first * size * width;
  out.shape = {batch, tokens, count, size};
  out.strides = {tokens * pitch, pitch, size * width, width};
  return out;
}

// [batch, tokens, heads, size] as [batch, heads, tokens, size].
View heads_first(View view) {
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

// [batch, heads, tokens, size], dense, to [batch * tokens, heads * size].
Tensor rows_of_heads(const Tensor& by_head) {
  const Shape& shape = by_head.shape();
  Tensor out = Tensor::values({shape[0] * shape[2], shape[1] * shape[3]}, DType::f32);
  convert_into(by_head.view(), heads_first(heads_of(out, shape[0], shape[3], 0, shape[1])), kOp);
  return out;
}

// Where the next tokens begin: after those of the cache, of which all sequences have as many.
std::int64_t first_position(const KvCache* cache) {
  if (cache == nullptr) return 0;
  const auto lengths = cache->lengths();
  check(std::ranges::all_of(lengths, [&](std::int64_t one) { return one == lengths.front(); }),
        ErrorCode::unsupported, kOp,
        "the sequences in the cache have different lengths; give each a cache of its own");
  return lengths.front();
}

AttentionOptions options_of(const MultiheadAttention& layer, const LinearRun& run) {
  AttentionOptions options{.rung = layer.rung,
                           .softmax_scale = layer.scale,
                           .soft_cap = layer.soft_cap,
                           .sinks = layer.sinks.view(),
                           .threads = run.threads,
                           .backend = run.backend,
                           .log = run.log,
                           .stream = run.stream};
  options.mask.causal = true;
  options.mask.left = layer.window < 0 ? -1 : layer.window - 1;
  return options;
}

// Q or K after its norm, in memory of its own; as it is where there is none.
View normed(const NormLayer& norm, const View& heads, Tensor& memory, const LinearRun& run) {
  if (!norm.exists()) return heads;
  memory = norm.forward(heads, run);
  return memory.view();
}

}  // namespace

std::int64_t MultiheadAttention::nbytes() const {
  std::int64_t sum = out.nbytes() + q_norm.nbytes() + k_norm.nbytes();
  for (const FrozenLinear& part : qkv) sum += part.nbytes();
  return sum;
}

void MultiheadAttention::forward_into(const Produced& x, std::int64_t batch, const View& y,
                                      const View& residual, KvCache* cache,
                                      const LayerRun& run) const {
  const std::int64_t rows = x.shape[0], tokens = rows / batch;
  const std::int64_t width = (heads + 2 * kv_heads) * head_size;
  const std::int64_t first = first_position(cache);
  const Tensor projected = Tensor::values({rows, width}, DType::f32);
  octavo::forward_into(qkv, x, projected.view(), run);
  Tensor q_memory, k_memory;
  const View q = normed(q_norm, heads_of(projected, batch, head_size, 0, heads), q_memory, run.run);
  const View k =
      normed(k_norm, heads_of(projected, batch, head_size, heads, kv_heads), k_memory, run.run);
  const View v = heads_first(heads_of(projected, batch, head_size, heads + kv_heads, kv_heads));
  if (rope != nullptr) {
    const std::int64_t context = std::max(run.context, first + tokens);
    // Q and K as they lie side by side are rotated by the same cosines and sines, found once.
    if (!q_norm.exists() && !k_norm.exists()) {
      rope->forward(heads_of(projected, batch, head_size, 0, heads + kv_heads), first, context,
                    run.run);
    } else {
      rope->forward(q, first, context, run.run);
      rope->forward(k, first, context, run.run);
    }
  }
  const View keys = heads_first(k);
  if (run.observer != nullptr && run.observer->on_cache) run.observer->on_cache(module, keys, v);

  const AttentionOptions options = options_of(*this, run.run);
  const Tensor by_head = Tensor::values({batch, heads, tokens, head_size}, DType::f32);
  if (cache != nullptr) {
    cache->append(keys, v);
    cache->attend_into(heads_first(q), by_head.view(), options);
  } else {
    attention_into(heads_first(q), keys, v, by_head.view(), options);
  }
  const Tensor mixed =
      tokens == 1
          ? Tensor::adopt(value_view(by_head.view().data, DType::f32, {rows, heads * head_size}),
                          by_head.owner())
          : rows_of_heads(by_head);
  out.forward_into(mixed.view(), y, run, residual);
}

}  // namespace octavo
