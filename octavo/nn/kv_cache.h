// KV cache: the keys and values of growing sequences, as codes with scales, half the bytes of bf16,
// or as values of a type. (How fast decode attention, few queries by many keys, reads them:
// docs/performance.md.)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/nn/kv_statistics.h"
#include "octavo/ops/attention/attention.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/quant/scaling.h"

namespace octavo {

struct KvCacheOptions {
  // Tiles within a token, so that a token is quantized once, when it comes: one e4m3 scale per
  // token and head ("fp8-channel") unless told otherwise; "mxfp8" and int8 per token work too.
  Scaling k = preset("fp8-channel"), v = preset("fp8-channel");
  // If given, tokens are kept as values of this type, f32, bf16 or f16, and not quantized.
  std::optional<DType> values{};
  std::int64_t capacity = 256;  // tokens there is memory for at first; it doubles when it is full
  // Where the cache lives. On a device its lengths do, too: append and attend do not wait and can
  // be captured into a graph, whose every run appends behind the run before. Growing moves the
  // memory: a graph that was captured before it must not run again.
  Device device{};
  // If given, tokens lie in pages of this size, which batches take from a common pool as they grow
  // (16 to 256, a power of two, where the decode kernels of a device read them in place).
  std::int64_t page_tokens = 0;
};

class OCTAVO_API KvCache {
 public:
  KvCache(std::int64_t batches, std::int64_t kv_heads, std::int64_t head_size,
          std::int64_t value_size, const KvCacheOptions& options = {});
  // Copies have memory of their own: what is appended to one is not in the other.
  KvCache(const KvCache& other);
  KvCache& operator=(const KvCache& other);
  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) noexcept = default;
  ~KvCache() = default;

  // K is [B, Hkv, tokens, D] and V is [B, Hkv, tokens, E] of any value type, where the cache is:
  // the next tokens of every batch, or with `counts` its first ones, that many. Nothing is kept
  // when this throws. While a stream is captured no memory can be made: reserve it before; tokens
  // for which a run of the graph finds no room are dropped.
  void append(const View& k, const View& v, std::span<const std::int64_t> counts = {},
              void* stream = nullptr);
  // The same of tokens that are codes with this cache's scalings, such as another cache's.
  void append(const QuantizedTensor& k, const QuantizedTensor& v,
              std::span<const std::int64_t> counts = {}, void* stream = nullptr);
  // Makes room for this number of tokens of every batch; truncate and clear leave it.
  void reserve(std::int64_t tokens, void* stream = nullptr);

  [[nodiscard]] bool is_quantized() const { return !type_; }

  // Q is [B, H, queries, D]: the last tokens of their batches, each seeing what came before it and
  // itself. There are no more of them than the longest batch has tokens; in a shorter one, rows
  // before its first token are zeros. options.mask keeps its window alone. The rung is
  // options.rung; with bf16, Q is rounded to bf16 and codes are taken as they are.
  [[nodiscard]] Tensor attend(const Operand& q,
                              AttentionOptions options = {.rung = AttentionRung::bf16}) const;

  void attend_into(const Operand& q, const View& out,
                   AttentionOptions options = {.rung = AttentionRung::bf16}) const;

  // Waits where the cache is on a device.
  [[nodiscard]] std::span<const std::int64_t> lengths() const;
  // Tokens of a batch; in pages, of all batches together.
  [[nodiscard]] std::int64_t capacity() const;
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] std::int64_t page_tokens() const { return page_tokens_; }
  [[nodiscard]] std::int64_t nbytes() const;
  // [B, Hkv, capacity, D], or [pages, Hkv, page tokens, D], in the cache's own memory: what lies
  // beyond a batch's length means nothing. Of a cache of codes; that of values has key_values and
  // value_values instead.
  [[nodiscard]] const QuantizedTensor& keys() const { return k_; }
  [[nodiscard]] const QuantizedTensor& values() const { return v_; }
  [[nodiscard]] const Tensor& key_values() const { return k_.rowwise.codes; }
  [[nodiscard]] const Tensor& value_values() const { return v_.rowwise.codes; }
  // Copies of the tokens there are, [B, Hkv, longest, D]: zeros beyond a batch's length.
  [[nodiscard]] QuantizedTensor key_tokens() const;
  [[nodiscard]] QuantizedTensor value_tokens() const;

  // Of V, one for each (batch, KV head), as tokens came: with them `auto` chooses without reading
  // V. On the CPU; a device has none.
  [[nodiscard]] std::vector<AttentionStatistics> value_statistics() const {
    return statistics_.all();
  }
  // Of a cache in pages: the pages of every batch, in its own memory.
  [[nodiscard]] BlockTable block_table() const;

  void clear(void* stream = nullptr);
  // Drops the last tokens of a batch, for example a rejected draft (speculative decoding).
  void truncate(std::int64_t batch, std::int64_t length, void* stream = nullptr);

 private:
  [[nodiscard]] std::int64_t batches() const { return static_cast<std::int64_t>(lengths_.size()); }
  [[nodiscard]] bool is_on_cpu() const { return device_.kind == DeviceKind::cpu; }
  [[nodiscard]] Exec exec_on(void* stream) const { return {.device = device_, .stream = stream}; }

  // kv_cache_memory.cc: room for `tokens` of each batch.
  void make_room(std::span<const std::int64_t> tokens, void* stream);
  void make_pages(std::span<const std::int64_t> tokens, void* stream);
  [[nodiscard]] std::int64_t pages_for(std::int64_t tokens) const;
  void grow_pool(std::int64_t pages, void* stream);
  // All of `from` in larger memory of this shape, which differs in pages or rows alone.
  [[nodiscard]] QuantizedTensor enlarged(const QuantizedTensor& from, const Shape& shape,
                                         void* stream) const;
  // The first `tokens` of every batch, as far as it has them, side by side.
  [[nodiscard]] QuantizedTensor gathered(const QuantizedTensor& from, std::int64_t tokens) const;
  [[nodiscard]] QuantizedTensor empty(const Shape& shape, const Scaling& scaling,
                                      void* stream) const;
  // Tokens [first, first + count) of a batch to the first rows of a batch of dense memory.
  void copy_tokens(const QuantizedTensor& from, const QuantizedTensor& to, std::int64_t batch,
                   std::int64_t first, std::int64_t count, std::int64_t to_batch) const;
  void copy_memory(const KvCache& other);
  void return_pages();
  void write_lengths(void* stream);
  void write_table(void* stream);

  void check_counts(std::int64_t tokens, std::span<const std::int64_t> counts) const;
  void take(const QuantizedTensor& k, const QuantizedTensor& v,
            std::span<const std::int64_t> counts, void* stream);
  void check_queries(const Operand& q) const;
  [[nodiscard]] AttentionOptions with_lengths(AttentionOptions options) const;
  [[nodiscard]] Operand operand(const QuantizedTensor& of) const;
  [[nodiscard]] QuantizedTensor kept(const View& tokens, const QuantizedTensor& like,
                                     void* stream) const;
  [[nodiscard]] Tensor as_numbers(const QuantizedTensor& of) const;
  [[nodiscard]] Tensor values_of(std::int64_t batch, std::int64_t first, std::int64_t count) const;
  void check_is_quantized(std::string_view what) const;

  Device device_{};
  std::optional<DType> type_;  // of values; then they lie where codes would, and have no scales
  QuantizedTensor k_, v_;
  // On a device as many as the host has appended: runs of graphs make more.
  mutable std::vector<std::int64_t> lengths_;
  mutable bool has_lengths_ = true;  // false once an append was captured
  Tensor device_lengths_;            // memory of std::int64_t
  // Pages.
  std::int64_t page_tokens_ = 0, columns_ = 0;
  std::vector<std::int32_t> table_, free_;  // [batches, columns]; pages of no batch
  std::vector<std::int64_t> taken_;         // pages of each batch
  std::int64_t reserved_ = 0;               // of these, pages that a batch keeps
  Tensor device_table_;                     // memory of std::int32_t
  // On the CPU, of V: what `auto` wants to know.
  KvStatistics statistics_;
};

}  // namespace octavo
