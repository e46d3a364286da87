#include "octavo/nn/kv_cache.h"

#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/exec/temporary_internal.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/ops/attention/append_tokens_internal.h"
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

void check_is_here(const View& view, Device device, std::string_view name) {
  check(view.device == device, ErrorCode::invalid_argument, kOp, name, " is on ",
        to_string(view.device), " and the cache on ", to_string(device),
        "; copy it there, or make a cache where the tokens are");
}

// Rows of new tokens, and where the first of them goes.
AppendRows rows_of(const Tensor& from, const Tensor& to) {
  const View &source = from.view(), &target = to.view();
  return {.from = static_cast<const std::byte*>(source.data),
          .from_batch = source.strides[0],
          .from_head = source.strides[1],
          .from_row = source.strides[2],
          .to = static_cast<std::byte*>(target.data),
          .to_page = target.strides[0],
          .to_head = target.strides[1],
          .to_row = target.strides[2],
          .bytes = target.strides[2]};
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
    : device_(options.device), type_(options.values), page_tokens_(options.page_tokens) {
  check(batches > 0 && kv_heads > 0 && head_size > 0 && value_size > 0 && options.capacity > 0,
        ErrorCode::invalid_argument, kOp, "got ", batches, " batches, ", kv_heads,
        " heads, head sizes ", head_size, " and ", value_size, " and a capacity of ",
        options.capacity, "; expected at least 1 of each");
  check(page_tokens_ >= 0, ErrorCode::invalid_argument, kOp, "got pages of ", page_tokens_,
        " tokens; expected at least 1, or 0 for no pages");
  if (is_quantized()) {
    check_tiles(options.k, "K");
    check_tiles(options.v, "V");
  } else {
    check(*type_ == DType::f32 || *type_ == DType::bf16 || *type_ == DType::f16,
          ErrorCode::wrong_type, kOp, "got values of ",
          is_value(*type_) ? dtype_name(*type_) : "codes",
          "; expected float32, bfloat16 or float16 (for codes give their scalings)");
  }
  lengths_.assign(static_cast<std::size_t>(batches), 0);
  taken_ = lengths_;
  const std::int64_t pages = page_tokens_ == 0 ? batches : 0,
                     rows = page_tokens_ == 0 ? options.capacity : page_tokens_;
  k_ = empty({pages, kv_heads, rows, head_size}, options.k, nullptr);
  v_ = empty({pages, kv_heads, rows, value_size}, options.v, nullptr);
  if (is_on_cpu()) {
    statistics_ = KvStatistics(batches, kv_heads, value_size);
  } else {
    device_lengths_ = values_on(device_, {batches}, DType::f64);  // as wide as a length
    write_lengths(nullptr);
  }
  if (page_tokens_ > 0) {
    std::int64_t pool = 0;
    check(!__builtin_mul_overflow(batches, pages_for(options.capacity), &pool),
          ErrorCode::invalid_argument, kOp, "got a capacity of ", options.capacity,
          " tokens in pages of ", page_tokens_, "; expected fewer than 2^31 pages");
    grow_pool(pool, nullptr);
  }
}

KvCache::KvCache(const KvCache& other)
    : device_(other.device_),
      type_(other.type_),
      lengths_(other.lengths().begin(), other.lengths().end()),
      page_tokens_(other.page_tokens_),
      columns_(other.columns_),
      table_(other.table_),
      free_(other.free_),
      taken_(other.taken_),
      reserved_(other.reserved_),
      statistics_(other.statistics_) {
  copy_memory(other);
}

KvCache& KvCache::operator=(const KvCache& other) { return *this = KvCache(other); }

// In memory of the call where the cache is on a device.
QuantizedTensor KvCache::kept(const View& tokens, const QuantizedTensor& like, void* stream) const {
  QuantizedTensor out;
  if (is_on_cpu()) {
    if (is_quantized()) return quantize(tokens, like.scaling);
    out.shape = tokens.shape;
    out.rowwise.codes = converted(tokens, *type_, kOp);
    return out;
  }
  if (is_quantized()) {
    const Exec exec = exec_on(stream);
    out = make_quantized(tokens.shape, tokens.dtype, like.scaling,
                         [&exec](const View& part) { return temporary(exec, part); });
    quantize_into(tokens, out, {.stream = stream});
    return out;
  }
  check(tokens.dtype == *type_, ErrorCode::wrong_type, kOp, "got tokens of ",
        is_value(tokens.dtype) ? dtype_name(tokens.dtype) : "codes", "; expected ",
        dtype_name(*type_), ", as the cache on ", to_string(device_), " keeps them");
  check(is_dense(tokens), ErrorCode::invalid_argument, kOp,
        "the tokens are not one run of memory; copy them");
  out.shape = tokens.shape;
  out.rowwise.codes = Tensor::adopt(tokens, {});
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
  const std::int64_t batches = this->batches();
  check(counts.empty() || static_cast<std::int64_t>(counts.size()) == batches,
        ErrorCode::invalid_argument, kOp, "got ", counts.size(),
        " counts; expected one for each of ", batches, " batches");
  for (const std::int64_t count : counts)
    check(count >= 0 && count <= tokens, ErrorCode::invalid_argument, kOp, "got a count of ", count,
          "; expected 0 to the ", tokens, " tokens there are");
}

void KvCache::append(const View& k, const View& v, std::span<const std::int64_t> counts,
                     void* stream) {
  const auto check_values = [&](const View& tokens, const QuantizedTensor& of,
                                std::string_view name) {
    check_view(tokens, kOp, name);
    check_is_here(tokens, device_, name);
    Shape cache = of.shape;
    cache[0] = batches();
    check_tokens(tokens.shape, k.shape, cache, name);
  };
  check_values(k, k_, "K");
  check_values(v, v_, "V");
  check_counts(k.shape[2], counts);
  take(kept(k, k_, stream), kept(v, v_, stream), counts, stream);
}

void KvCache::append(const QuantizedTensor& k, const QuantizedTensor& v,
                     std::span<const std::int64_t> counts, void* stream) {
  check_is_quantized("the tokens");
  const auto check_codes = [&](const QuantizedTensor& tokens, const QuantizedTensor& of,
                               std::string_view name) {
    Shape cache = of.shape;
    cache[0] = batches();
    check_tokens(tokens.shape, k.shape, cache, name);
    check(tokens.scaling == of.scaling, ErrorCode::invalid_argument, kOp, name, " is ",
          describe(tokens.scaling), "; expected codes of this cache, ", describe(of.scaling));
    for (const Tensor* part : {&tokens.rowwise.codes, &tokens.rowwise.scales}) {
      check_is_here(part->view(), device_, name);
      check(is_dense(part->view()), ErrorCode::invalid_argument, kOp, name,
            " is not one run of memory; copy it");
    }
  };
  check_codes(k, k_, "K");
  check_codes(v, v_, "V");
  check_counts(k.shape[2], counts);
  take(k, v, counts, stream);
}

void KvCache::take(const QuantizedTensor& k, const QuantizedTensor& v,
                   std::span<const std::int64_t> counts, void* stream) {
  const Exec exec = exec_on(stream);
  const bool captures = !is_on_cpu() && device_api(device_).capturing(exec);
  if (!captures) static_cast<void>(lengths());  // what runs of graphs have appended
  std::vector<std::int64_t> wanted = lengths_;
  for (std::size_t batch = 0; batch < wanted.size(); ++batch)
    wanted[batch] += counts.empty() ? k.shape[2] : counts[batch];
  make_room(wanted, stream);
  // Made before a token is appended, as it may throw.
  const Tensor numbers = is_on_cpu() ? as_numbers(v) : Tensor();

  DeviceCopies copies(exec);
  AppendJob job{.batches = batches(),
                .heads = k_.shape[1],
                .tokens = k.shape[2],
                .counts = counts.empty() ? nullptr : copies.of(counts.data(), batches()),
                .capacity = page_tokens_ > 0 ? columns_ * page_tokens_ : k_.shape[2],
                .lengths = is_on_cpu() ? lengths_.data()
                                       : static_cast<std::int64_t*>(device_lengths_.view().data)};
  const auto add = [&](const Tensor& from, const Tensor& to) {
    if (to.owner() != nullptr && element_count(from.shape()) > 0)
      job.parts[job.part_count++] = rows_of(from, to);
  };
  add(k.rowwise.codes, k_.rowwise.codes);
  add(v.rowwise.codes, v_.rowwise.codes);
  if (is_quantized()) {
    add(k.rowwise.scales, k_.rowwise.scales);
    add(v.rowwise.scales, v_.rowwise.scales);
  }
  if (page_tokens_ > 0)
    job.pages = {.table = block_table().blocks,
                 .table_pitch = columns_,
                 .page_rows = page_tokens_,
                 .page_count = k_.shape[0]};
  append_tokens(exec, job);
  if (is_on_cpu()) {
    statistics_.add(numbers.view(), counts);
  } else if (captures) {
    has_lengths_ = false;
  } else {
    lengths_ = wanted;
  }
}

// f32, of codes or values on the CPU.
Tensor KvCache::as_numbers(const QuantizedTensor& of) const {
  if (is_quantized()) return dequantize(of, DType::f32);
  return converted(of.rowwise.codes.view(), DType::f32, kOp);
}

// Tokens [first, first + count) of a batch on the CPU, as f32 [1, Hkv, count, E].
Tensor KvCache::values_of(std::int64_t batch, std::int64_t first, std::int64_t count) const {
  Shape shape = v_.shape;
  shape[0] = 1;
  shape[2] = count;
  const QuantizedTensor some = empty(shape, v_.scaling, nullptr);
  copy_tokens(v_, some, batch, first, count, 0);
  return as_numbers(some);
}

QuantizedTensor KvCache::key_tokens() const {
  check_is_quantized("key_tokens");
  return gathered(k_, std::ranges::max(lengths()));
}

QuantizedTensor KvCache::value_tokens() const {
  check_is_quantized("value_tokens");
  return gathered(v_, std::ranges::max(lengths()));
}

AttentionOptions KvCache::with_lengths(AttentionOptions options) const {
  check(options.mask.query_lengths.empty() && options.mask.key_lengths.empty(),
        ErrorCode::invalid_argument, kOp,
        "got lengths: the cache knows its own, and every query is taken as one of the last tokens");
  options.mask.causal = true;
  options.mask.bottom_right = true;
  if (is_on_cpu())
    options.mask.key_lengths = lengths_;
  else
    options.mask.device_key_lengths = static_cast<const std::int64_t*>(device_lengths_.view().data);
  options.block_table = block_table();
  return options;
}

void KvCache::check_queries(const Operand& q) const {
  const Shape& shape = q.shape();
  const std::int64_t batches = this->batches(), heads = k_.shape[1], size = k_.shape[3];
  // Checked here, because attention would name the capacity in its messages, not the lengths.
  if (shape.rank() != 4 || shape[0] != batches || shape[1] % heads != 0 || shape[3] != size)
    fail(ErrorCode::invalid_argument, kOp, "Q has shape ", to_string(shape), "; expected [",
         batches, ", a multiple of ", heads, ", queries, ", size,
         "], as the keys of this cache have it");
  const std::int64_t queries = shape[2], longest = std::ranges::max(lengths_);
  if (queries > longest && has_lengths_)
    fail(ErrorCode::invalid_argument, kOp, "got ", queries,
         " queries, and the longest sequence has ", longest,
         " tokens: queries are its last ones; append the keys and values of theirs first");
}

Tensor KvCache::attend(const Operand& q, AttentionOptions options) const {
  check_queries(q);
  const Shape& shape = q.shape();
  const DType type = options.out                ? *options.out
                     : q.quantized() != nullptr ? DType::f32
                                                : q.values().dtype;
  const Tensor out =
      values_on(device_, {shape[0], shape[1], shape[2], v_.shape[3]}, type, options.stream);
  attend_into(q, out.view(), options);
  return out;
}

void KvCache::attend_into(const Operand& q, const View& out, AttentionOptions options) const {
  check_queries(q);
  options = with_lengths(options);
  std::vector<AttentionStatistics> statistics;
  if (is_on_cpu() && options.rung == AttentionRung::automatic) {
    statistics = value_statistics();
    options.value_statistics = statistics;
  }
  attention_into(q, operand(k_), operand(v_), out, options);
}

void KvCache::truncate(std::int64_t batch, std::int64_t length, void* stream) {
  check(batch >= 0 && batch < batches(), ErrorCode::invalid_argument, kOp, "got batch ", batch,
        "; expected 0 to ", batches() - 1);
  const std::int64_t now = lengths()[static_cast<std::size_t>(batch)];
  check(length >= 0 && length <= now, ErrorCode::invalid_argument, kOp, "got a length of ", length,
        " for batch ", batch, ", which has ", now, " tokens");
  if (is_on_cpu() && length < now) {
    KvStatistics statistics = statistics_;
    if (!statistics.drop(values_of(batch, length, now - length).view(), batch))
      statistics.count_again(values_of(batch, 0, length).view(), batch);
    statistics_ = std::move(statistics);
  }
  lengths_[static_cast<std::size_t>(batch)] = length;
  return_pages();
  write_lengths(stream);
  write_table(stream);
}

}  // namespace octavo
