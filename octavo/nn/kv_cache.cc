#include "octavo/nn/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "KvCache";

void check_tiles(const Scaling& scaling, std::string_view name) {
  check_scaling(scaling);
  check(scaling.tile.rows == 1 && scaling.rowwise && !scaling.columnwise && scaling.axis == -1,
        ErrorCode::invalid_argument, kOp, "the tiles of ", name, " (", describe(scaling),
        ") hold more than one token; a token is quantized when it comes, so give tiles of one row, "
        "such as fp8-channel or mxfp8, rowwise");
  check(scaling.scale.format != ScaleFormat::e4m3_f32, ErrorCode::invalid_argument, kOp,
        "the scales of ", name, " have two levels (", describe(scaling),
        "), and the tensor's changes as tokens come; give scales of one level");
  check(scaling.scale_order == ScaleOrder::row_major, ErrorCode::invalid_argument, kOp,
        "the scales of ", name, " are column-major; a cache keeps those of a token together");
}

// Rows [0, count) of `from`, [batches, heads, rows, ...], to rows from `at` on of `to`.
void copy_rows(const Tensor& from, const Tensor& to, std::int64_t batch, std::int64_t count,
               std::int64_t from_row, std::int64_t to_row) {
  const Shape &source = from.shape(), &target = to.shape();
  if (count == 0 || element_count(source) == 0) return;
  const View &source_view = from.view(), &target_view = to.view();
  for (std::int64_t head = 0; head < target[1]; ++head)
    std::memcpy(static_cast<std::byte*>(target_view.data) + batch * target_view.strides[0] +
                    head * target_view.strides[1] + to_row * target_view.strides[2],
                static_cast<const std::byte*>(source_view.data) + batch * source_view.strides[0] +
                    head * source_view.strides[1] + from_row * source_view.strides[2],
                static_cast<std::size_t>(count * source_view.strides[2]));
}

void copy_rows(const QuantizedTensor& from, const QuantizedTensor& to, std::int64_t batch,
               std::int64_t count, std::int64_t to_row) {
  copy_rows(from.rowwise.codes, to.rowwise.codes, batch, count, 0, to_row);
  if (from.rowwise.scales.owner() != nullptr)
    copy_rows(from.rowwise.scales, to.rowwise.scales, batch, count, 0, to_row);
}

// The shape of tokens to append, beside that of K and of what the cache has.
void check_tokens(const Shape& shape, const Shape& k, const Shape& cache, std::string_view name) {
  if (shape.rank() != 4 || shape[0] != cache[0] || shape[1] != cache[1] || shape[3] != cache[3] ||
      shape[2] != k[2])
    fail(ErrorCode::invalid_argument, kOp, name, " has shape ", to_string(shape), "; expected [",
         cache[0], ", ", cache[1], ", tokens, ", cache[3], "], with as many tokens in K as in V");
}

}  // namespace

KvCache::KvCache(std::int64_t batches, std::int64_t kv_heads, std::int64_t head_size,
                 std::int64_t value_size, const KvCacheOptions& options)
    : type_(options.values) {
  check(batches > 0 && kv_heads > 0 && head_size > 0 && value_size > 0 && options.capacity > 0,
        ErrorCode::invalid_argument, kOp, "got ", batches, " batches, ", kv_heads,
        " heads, head sizes ", head_size, " and ", value_size, " and a capacity of ",
        options.capacity, "; expected at least 1 of each");
  if (is_quantized()) {
    check_tiles(options.k, "K");
    check_tiles(options.v, "V");
  } else {
    check(*type_ == DType::f32 || *type_ == DType::bf16 || *type_ == DType::f16,
          ErrorCode::wrong_type, kOp, "got values of ",
          is_value(*type_) ? dtype_name(*type_) : "codes",
          "; expected float32, bfloat16 or float16 (for codes give their scalings)");
  }
  k_ = empty({batches, kv_heads, options.capacity, head_size}, options.k);
  v_ = empty({batches, kv_heads, options.capacity, value_size}, options.v);
  lengths_.assign(static_cast<std::size_t>(batches), 0);
}

KvCache::KvCache(const KvCache& other)
    : type_(other.type_),
      k_(other.copied(other.k_, other.capacity())),
      v_(other.copied(other.v_, other.capacity())),
      lengths_(other.lengths_) {}

KvCache& KvCache::operator=(const KvCache& other) { return *this = KvCache(other); }

// Codes, or values where codes would be; zeros, because the kernels may read beyond a length.
QuantizedTensor KvCache::empty(const Shape& shape, const Scaling& scaling) const {
  QuantizedTensor out;
  out.shape = shape;
  if (is_quantized()) {
    out = make_quantized(shape, DType::f32, scaling);
    std::ranges::fill(out.rowwise.scales.bytes(), std::byte{0});
  } else {
    out.rowwise.codes = Tensor::values(shape, *type_);
  }
  std::ranges::fill(out.rowwise.codes.bytes(), std::byte{0});
  return out;
}

QuantizedTensor KvCache::kept(const View& tokens, const QuantizedTensor& like) const {
  if (is_quantized()) return quantize(tokens, like.scaling);
  QuantizedTensor out;
  out.shape = tokens.shape;
  out.rowwise.codes = converted(tokens, *type_, kOp);
  return out;
}

Operand KvCache::operand(const QuantizedTensor& of) const {
  if (is_quantized()) return of;
  return of.rowwise.codes;
}

std::int64_t KvCache::nbytes() const {
  if (is_quantized()) return k_.nbytes() + v_.nbytes();
  return k_.rowwise.codes.nbytes() + v_.rowwise.codes.nbytes();
}

void KvCache::check_is_quantized(std::string_view what) const {
  check(is_quantized(), ErrorCode::invalid_argument, kOp, what,
        " are codes, and this cache keeps values; give values, or make a cache without their type");
}

void KvCache::check_counts(std::int64_t tokens, std::span<const std::int64_t> counts) const {
  const std::int64_t batches = k_.shape[0];
  check(counts.empty() || static_cast<std::int64_t>(counts.size()) == batches,
        ErrorCode::invalid_argument, kOp, "got ", counts.size(),
        " counts; expected one for each of ", batches, " batches");
  for (const std::int64_t count : counts)
    check(count >= 0 && count <= tokens, ErrorCode::invalid_argument, kOp, "got a count of ", count,
          "; expected 0 to the ", tokens, " tokens there are");
}

void KvCache::append(const View& k, const View& v, std::span<const std::int64_t> counts) {
  const auto check_values = [&](const View& tokens, const QuantizedTensor& of,
                                std::string_view name) {
    check_view(tokens, kOp, name);
    check_on_cpu(tokens, kOp, name);
    check_tokens(tokens.shape, k.shape, of.shape, name);
  };
  check_values(k, k_, "K");
  check_values(v, v_, "V");
  check_counts(k.shape[2], counts);
  take(kept(k, k_), kept(v, v_), counts);
}

void KvCache::append(const QuantizedTensor& k, const QuantizedTensor& v,
                     std::span<const std::int64_t> counts) {
  check_is_quantized("the tokens");
  const auto check_codes = [&](const QuantizedTensor& tokens, const QuantizedTensor& of,
                               std::string_view name) {
    check_tokens(tokens.shape, k.shape, of.shape, name);
    check(tokens.scaling == of.scaling, ErrorCode::invalid_argument, kOp, name, " is ",
          describe(tokens.scaling), "; expected codes of this cache, ", describe(of.scaling));
    for (const Tensor* part : {&tokens.rowwise.codes, &tokens.rowwise.scales}) {
      check_on_cpu(part->view(), kOp, name);
      check(is_dense(part->view()), ErrorCode::invalid_argument, kOp, name,
            " is not one run of memory; copy it");
    }
  };
  check_codes(k, k_, "K");
  check_codes(v, v_, "V");
  check_counts(k.shape[2], counts);
  take(k, v, counts);
}

void KvCache::take(const QuantizedTensor& k, const QuantizedTensor& v,
                   std::span<const std::int64_t> counts) {
  const auto count_of = [&](std::size_t batch) {
    return counts.empty() ? k.shape[2] : counts[batch];
  };
  std::int64_t longest = 0;
  for (std::size_t batch = 0; batch < lengths_.size(); ++batch)
    longest = std::max(longest, lengths_[batch] + count_of(batch));
  reserve(longest);
  for (std::size_t batch = 0; batch < lengths_.size(); ++batch) {
    const auto at = static_cast<std::int64_t>(batch);
    copy_rows(k, k_, at, count_of(batch), lengths_[batch]);
    copy_rows(v, v_, at, count_of(batch), lengths_[batch]);
    lengths_[batch] += count_of(batch);
  }
}

QuantizedTensor KvCache::copied(const QuantizedTensor& from, std::int64_t tokens) const {
  Shape shape = from.shape;
  shape[2] = tokens;
  QuantizedTensor to = empty(shape, from.scaling);
  for (std::size_t batch = 0; batch < lengths_.size(); ++batch)
    copy_rows(from, to, static_cast<std::int64_t>(batch), lengths_[batch], 0);
  return to;
}

QuantizedTensor KvCache::key_tokens() const {
  check_is_quantized("key_tokens");
  return copied(k_, std::ranges::max(lengths_));
}

QuantizedTensor KvCache::value_tokens() const {
  check_is_quantized("value_tokens");
  return copied(v_, std::ranges::max(lengths_));
}

void KvCache::reserve(std::int64_t tokens) {
  if (tokens <= capacity()) return;
  const std::int64_t wanted = std::max(tokens, 2 * capacity());
  QuantizedTensor k = copied(k_, wanted), v = copied(v_, wanted);
  k_ = std::move(k);
  v_ = std::move(v);
}

AttentionOptions KvCache::with_lengths(AttentionOptions options) const {
  check(options.mask.query_lengths.empty() && options.mask.key_lengths.empty(),
        ErrorCode::invalid_argument, kOp,
        "got lengths: the cache knows its own, and every query is taken as one of the last tokens");
  options.mask.causal = true;
  options.mask.bottom_right = true;
  options.mask.key_lengths = lengths_;
  return options;
}

void KvCache::check_queries(const Operand& q) const {
  const Shape& shape = q.shape();
  const std::int64_t batches = k_.shape[0], heads = k_.shape[1], size = k_.shape[3];
  // Checked here, because attention would name the capacity in its messages, not the lengths.
  if (shape.rank() != 4 || shape[0] != batches || shape[1] % heads != 0 || shape[3] != size)
    fail(ErrorCode::invalid_argument, kOp, "Q has shape ", to_string(shape), "; expected [",
         batches, ", a multiple of ", heads, ", queries, ", size,
         "], as the keys of this cache have it");
  const std::int64_t queries = shape[2], longest = std::ranges::max(lengths_);
  if (queries > longest)
    fail(ErrorCode::invalid_argument, kOp, "got ", queries,
         " queries, and the longest sequence has ", longest,
         " tokens: queries are its last ones; append the keys and values of theirs first");
}

Tensor KvCache::attend(const Operand& q, AttentionOptions options) const {
  check_queries(q);
  return attention(q, operand(k_), operand(v_), with_lengths(options));
}

void KvCache::attend_into(const Operand& q, const View& out, AttentionOptions options) const {
  check_queries(q);
  attention_into(q, operand(k_), operand(v_), out, with_lengths(options));
}

void KvCache::clear() { std::ranges::fill(lengths_, 0); }

void KvCache::truncate(std::int64_t batch, std::int64_t length) {
  check(batch >= 0 && batch < k_.shape[0], ErrorCode::invalid_argument, kOp, "got batch ", batch,
        "; expected 0 to ", k_.shape[0] - 1);
  std::int64_t& now = lengths_[static_cast<std::size_t>(batch)];
  check(length >= 0 && length <= now, ErrorCode::invalid_argument, kOp, "got a length of ", length,
        " for batch ", batch, ", which has ", now, " tokens");
  now = length;
}

}  // namespace octavo
