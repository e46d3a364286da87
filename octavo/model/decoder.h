// Decoder: a whole model in memory, that computes logits, with a KV cache for tokens that come one
// after another.
//   const Decoder model("model/");
//   Tensor logits = model.logits(ids);                         // [tokens, vocabulary]
//   DecoderCache cache = model.make_cache();
//   Tensor next = model.next_logits(ids, cache);               // [vocabulary], of the last token
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/model/decoder_layer.h"
#include "octavo/model/model_config.h"
#include "octavo/model/model_files.h"
#include "octavo/nn/kv_cache.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Keys and values of one sequence, of every layer.
class OCTAVO_API DecoderCache {
 public:
  DecoderCache(const ModelConfig& config, const KvCacheOptions& options);
  [[nodiscard]] std::int64_t length() const;  // tokens
  [[nodiscard]] std::int64_t nbytes() const;
  [[nodiscard]] KvCache& layer(std::size_t index) { return layers_[index]; }
  // Drops the last tokens.
  void truncate(std::int64_t length);

 private:
  std::vector<KvCache> layers_;
};

class OCTAVO_API Decoder {
 public:
  explicit Decoder(const std::string& path, const ModelFilesOptions& options = {});

  [[nodiscard]] const ModelFiles& files() const { return *files_; }
  [[nodiscard]] const ModelConfig& config() const { return files_->config(); }
  [[nodiscard]] std::int64_t nbytes() const;  // of its weights

  // The default keeps values in f32, as they are computed; bf16 is half of that, FP8 a quarter.
  [[nodiscard]] DecoderCache make_cache(const KvCacheOptions& options = {
                                            .values = DType::f32}) const;

  // Logits of every token of one sequence, [ids.size(), vocabulary], f32; with a cache, after the
  // tokens in it. Throws Error(invalid_argument) for no ids, ids beyond the vocabulary, and more
  // tokens than the model has positions; the cache is then as it was.
  [[nodiscard]] Tensor logits(std::span<const std::int32_t> ids, DecoderCache* cache = nullptr,
                              const LinearRun& run = {}) const;
  // Of the last of these tokens, [vocabulary]. Long texts are taken a part at a time, with the same
  // result.
  [[nodiscard]] Tensor next_logits(std::span<const std::int32_t> ids, DecoderCache& cache,
                                   const LinearRun& run = {}) const;

 private:
  void check_ids(std::span<const std::int32_t> ids, const DecoderCache* cache) const;
  // `context`: tokens of the whole prompt, those in the cache included; 0: these are the last.
  [[nodiscard]] Tensor hidden_of(std::span<const std::int32_t> ids, DecoderCache* cache,
                                 const LinearRun& run, std::int64_t context = 0) const;
  [[nodiscard]] Tensor head_of(const View& hidden, const LinearRun& run) const;

  std::shared_ptr<const ModelFiles> files_;
  Embedding embedding_{};
  NormLayer norm_{};
  FrozenLinear head_{};
  std::vector<DecoderLayer> layers_{};
};

}  // namespace octavo
