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

  // K is [B, Hkv, tokens, D] and V is [B, Hkv, tokens, E] of any value type: the next tokens of
  // every batch, or with `counts` the first so many of them of each. Nothing is kept when this
  // throws.
  void append(const View& k, const View& v, std::span<const std::int64_t> counts = {});
  // The same of tokens that are codes with this cache's scalings, such as another cache's.
  void append(const QuantizedTensor& k, const QuantizedTensor& v,
              std::span<const std::int64_t> counts = {});

  [[nodiscard]] bool is_quantized() const { return !type_; }

  // Q is [B, H, queries, D]: the last tokens of their batches, each seeing what came before it and
  // itself. There are no more of them than the longest batch has tokens; in a shorter one, rows
  // before its first token are zeros. options.mask keeps its window alone. The rung is
  // options.rung; with bf16, Q is rounded to bf16 and codes are taken as they are.
  [[nodiscard]] Tensor attend(const Operand& q,
                              AttentionOptions options = {.rung = AttentionRung::bf16}) const;

  void attend_into(const Operand& q, const View& out,
                   AttentionOptions options = {.rung = AttentionRung::bf16}) const;

  [[nodiscard]] std::span<const std::int64_t> lengths() const { return lengths_; }
  [[nodiscard]] std::int64_t capacity() const { return k_.shape[2]; }
  [[nodiscard]] std::int64_t nbytes() const;
  // [B, Hkv, capacity, D], in the cache's own memory: what lies beyond a batch's length means
  // nothing. Of a cache of codes; that of values has key_values and value_values instead.
  [[nodiscard]] const QuantizedTensor& keys() const { return k_; }
  [[nodiscard]] const QuantizedTensor& values() const { return v_; }
  [[nodiscard]] const Tensor& key_values() const { return k_.rowwise.codes; }
  [[nodiscard]] const Tensor& value_values() const { return v_.rowwise.codes; }
  // Copies of the tokens there are, [B, Hkv, longest, D]: zeros beyond a batch's length.
  [[nodiscard]] QuantizedTensor key_tokens() const;
  [[nodiscard]] QuantizedTensor value_tokens() const;

  void clear();
  // Drops the last tokens of a batch, for example a rejected draft (speculative decoding).
  void truncate(std::int64_t batch, std::int64_t length);

 private:
  void reserve(std::int64_t tokens);
  // The first `tokens` of every batch, as far as it has them, in new memory.
  [[nodiscard]] QuantizedTensor copied(const QuantizedTensor& from, std::int64_t tokens) const;
  void check_counts(std::int64_t tokens, std::span<const std::int64_t> counts) const;
  void take(const QuantizedTensor& k, const QuantizedTensor& v,
            std::span<const std::int64_t> counts);
  void check_queries(const Operand& q) const;
  [[nodiscard]] AttentionOptions with_lengths(AttentionOptions options) const;

  [[nodiscard]] Operand operand(const QuantizedTensor& of) const;
  [[nodiscard]] QuantizedTensor empty(const Shape& shape, const Scaling& scaling) const;
  [[nodiscard]] QuantizedTensor kept(const View& tokens, const QuantizedTensor& like) const;
  void check_is_quantized(std::string_view what) const;

  std::optional<DType> type_;  // of values; then they lie where codes would, and have no scales
  QuantizedTensor k_, v_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace octavo
