#include "octavo/model/decoder.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/nn/pointwise_internal.h"
#include "octavo/tensor/reused_memory_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "model";
// Tokens at a time of a long text: enough for products to be limited by arithmetic.
constexpr std::size_t kTokens = 1024;

View rows_from(View view, std::int64_t first, std::int64_t count) {
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[0];
  view.shape[0] = count;
  return view;
}

}  // namespace

DecoderCache::DecoderCache(const ModelConfig& config, const KvCacheOptions& options) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    layers_.emplace_back(1, config.kv_heads, config.head_size, config.head_size, options);
}

std::int64_t DecoderCache::length() const { return layers_.front().lengths().front(); }

std::int64_t DecoderCache::nbytes() const {
  std::int64_t sum = 0;
  for (const KvCache& layer : layers_) sum += layer.nbytes();
  return sum;
}

void DecoderCache::truncate(std::int64_t length) {
  for (KvCache& layer : layers_) layer.truncate(0, std::min(length, layer.lengths().front()));
}

Decoder::Decoder(const std::string& path, const ModelFilesOptions& options)
    : files_(std::make_shared<const ModelFiles>(path, options)) {
  const ModelConfig& config = files_->config();
  embedding_ = files_->load_embedding();
  norm_ = files_->load_norm();
  if (files_->has_tied_head()) {
    head_.weight.values = embedding_.weight;
  } else {
    head_.weight = files_->load_head(0, config.vocabulary);
  }
  head_.input = files_->head_input();
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    layers_.push_back(files_->load_layer(layer));
}

std::int64_t Decoder::nbytes() const {
  std::int64_t sum = embedding_.weight.nbytes() + norm_.nbytes();
  if (!files_->has_tied_head()) sum += head_.nbytes();
  for (const DecoderLayer& layer : layers_) sum += layer.nbytes();
  return sum;
}

DecoderCache Decoder::make_cache(const KvCacheOptions& options) const {
  return DecoderCache(config(), options);
}

void Decoder::check_ids(std::span<const std::int32_t> ids, const DecoderCache* cache) const {
  const ModelConfig& config = files_->config();
  check(!ids.empty(), ErrorCode::invalid_argument, kOp,
        "got no tokens; expected at least one: is the prompt empty?");
  for (std::size_t i = 0; i < ids.size(); ++i)
    check(ids[i] >= 0 && ids[i] < config.vocabulary, ErrorCode::invalid_argument, kOp, "got id ",
          ids[i], " at position ", i, "; expected 0 to ", config.vocabulary - 1,
          ", the model's vocabulary: are these ids of another tokenizer?");
  const std::int64_t before = cache == nullptr ? 0 : cache->length();
  check(static_cast<std::int64_t>(ids.size()) <= config.max_positions - before,
        ErrorCode::invalid_argument, kOp, "got ", ids.size(), " tokens after ", before,
        "; expected at most the ", config.max_positions, " positions that the model has");
}

Tensor Decoder::hidden_of(std::span<const std::int32_t> ids, DecoderCache* cache,
                          const LinearRun& run, std::int64_t context) const {
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t width = config().hidden;
  Tensor hidden = Tensor::values({count, width}, DType::f32);
  const ReusedMemory memory(ReusedMemory::kMostFreeBytes);  // one layer's for the next
  const ReusedMemory::Scope reuse(memory);
  embedding_.forward_into(ids, hidden.view(), run);
  const std::int64_t before = cache == nullptr ? 0 : cache->length();
  try {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      layers_[layer].forward(
          {.hidden = value_view(hidden.view().data, DType::f32, {1, count, width}),
           .cache = cache == nullptr ? nullptr : &cache->layer(layer),
           .context = context,
           .run = run});
  } catch (...) {
    if (cache != nullptr) cache->truncate(before);
    throw;
  }
  return hidden;
}

Tensor Decoder::head_of(const View& hidden, const LinearRun& run) const {
  const Tensor normed = norm_.forward(hidden, run);
  Tensor out = Tensor::values({hidden.shape[0], config().vocabulary}, DType::f32);
  head_.forward_into(normed.view(), out.view(), {.run = run});
  if (config().logits_cap > 0.0) soft_cap(out.span<float>(), config().logits_cap, run.threads);
  return out;
}

Tensor Decoder::logits(std::span<const std::int32_t> ids, DecoderCache* cache,
                       const LinearRun& run) const {
  check_ids(ids, cache);
  return head_of(hidden_of(ids, cache, run).view(), run);
}

Tensor Decoder::next_logits(std::span<const std::int32_t> ids, DecoderCache& cache,
                            const LinearRun& run) const {
  check_ids(ids, &cache);
  const std::int64_t context = cache.length() + static_cast<std::int64_t>(ids.size());
  Tensor last;
  for (std::size_t first = 0; first < ids.size(); first += kTokens) {
    const auto part = ids.subspan(first, std::min(kTokens, ids.size() - first));
    const Tensor hidden = hidden_of(part, &cache, run, context);
    if (first + part.size() < ids.size()) continue;
    last = head_of(rows_from(hidden.view(), hidden.shape()[0] - 1, 1), run);
  }
  return Tensor::adopt(value_view(last.view().data, DType::f32, {config().vocabulary}),
                       last.owner());
}

}  // namespace octavo
