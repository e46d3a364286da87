// Memory of a KV cache: capacity that doubles, pages that batches take from a pool, copies.
#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/nn/kv_cache.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "KvCache";

// Between two memories of the cache's device, in stream order.
void copy_bytes(const Exec& exec, void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  if (exec.device.kind == DeviceKind::cpu) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  } else {
    device_api(exec.device).copy(exec, to, from, static_cast<std::size_t>(bytes));
  }
}

std::byte* place(const View& view, std::int64_t first, std::int64_t second, std::int64_t third) {
  return static_cast<std::byte*>(view.data) + first * view.strides[0] + second * view.strides[1] +
         third * view.strides[2];
}

// Visits the codes and scales that there are.
template <typename Visit>
void each_part(const QuantizedTensor& from, const QuantizedTensor& to, Visit visit) {
  visit(from.rowwise.codes.view(), to.rowwise.codes.view());
  if (from.rowwise.scales.owner() != nullptr)
    visit(from.rowwise.scales.view(), to.rowwise.scales.view());
}

void check_pages(std::int64_t pages) {
  check(pages < (std::int64_t{1} << 31), ErrorCode::invalid_argument, kOp, "got ", pages,
        " pages; expected fewer than 2^31: take larger ones");
}

}  // namespace

// Codes, or values where codes would be; zeros, because the kernels may read beyond a length.
QuantizedTensor KvCache::empty(const Shape& shape, const Scaling& scaling, void* stream) const {
  QuantizedTensor out;
  if (is_quantized()) {
    out = make_quantized(shape, DType::f32, scaling, device_, stream);
  } else {
    out.shape = shape;
    out.rowwise.codes = values_on(device_, shape, *type_, stream);
  }
  const Exec exec = exec_on(stream);
  for (const Tensor* part : {&out.rowwise.codes, &out.rowwise.scales})
    if (part->owner() != nullptr && part->nbytes() > 0)
      clear_memory(exec, part->view().data, static_cast<std::size_t>(part->nbytes()));
  return out;
}

std::int64_t KvCache::capacity() const {
  return page_tokens_ > 0 ? k_.shape[0] * page_tokens_ : k_.shape[2];
}

BlockTable KvCache::block_table() const {
  if (page_tokens_ == 0) return {};
  return {.blocks = is_on_cpu() ? table_.data()
                                : static_cast<const std::int32_t*>(device_table_.view().data),
          .batches = batches(),
          .columns = columns_,
          .pitch = columns_};
}

std::span<const std::int64_t> KvCache::lengths() const {
  if (is_on_cpu() || has_lengths_) return lengths_;
  const Exec exec = exec_on(nullptr);
  check_may_wait(exec, kOp, "lengths cannot be read; they are known after the graph has run");
  copy_and_wait(exec, lengths_.data(), device_lengths_.view().data,
                lengths_.size() * sizeof(std::int64_t));
  return lengths_;
}

void KvCache::write_lengths(void* stream) {
  if (is_on_cpu()) return;
  device_api(device_).upload(exec_on(stream), device_lengths_.view().data, lengths_.data(),
                             lengths_.size() * sizeof(std::int64_t));
}

void KvCache::write_table(void* stream) {
  if (is_on_cpu() || table_.empty()) return;
  device_api(device_).upload(exec_on(stream), device_table_.view().data, table_.data(),
                             table_.size() * sizeof(std::int32_t));
}

QuantizedTensor KvCache::enlarged(const QuantizedTensor& from, const Shape& shape,
                                  void* stream) const {
  QuantizedTensor to = empty(shape, from.scaling, stream);
  const Exec exec = exec_on(stream);
  each_part(from, to, [&](const View& source, const View& target) {
    if (element_count(source.shape) == 0) return;
    if (source.strides[0] == target.strides[0])  // more pages
      return copy_bytes(exec, target.data, source.data, source.shape[0] * source.strides[0]);
    for (std::int64_t batch = 0; batch < source.shape[0]; ++batch)
      for (std::int64_t head = 0; head < source.shape[1]; ++head)
        copy_bytes(exec, place(target, batch, head, 0), place(source, batch, head, 0),
                   source.shape[2] * source.strides[2]);
  });
  return to;
}

void KvCache::copy_memory(const KvCache& other) {
  k_ = enlarged(other.k_, other.k_.shape, nullptr);
  v_ = enlarged(other.v_, other.v_.shape, nullptr);
  if (is_on_cpu()) return;
  device_lengths_ = values_on(device_, {batches()}, DType::f64);
  write_lengths(nullptr);
  if (page_tokens_ == 0) return;
  device_table_ = values_on(device_, {batches() * columns_}, DType::f32);
  write_table(nullptr);
}

void KvCache::copy_tokens(const QuantizedTensor& from, const QuantizedTensor& to,
                          std::int64_t batch, std::int64_t first, std::int64_t count,
                          std::int64_t to_batch) const {
  const Exec exec = exec_on(nullptr);
  each_part(from, to, [&](const View& source, const View& target) {
    for (std::int64_t done = 0; done < count && target.shape[3] > 0;) {
      const std::int64_t token = first + done;
      std::int64_t page = batch, row = token, here = count - done;
      if (page_tokens_ > 0) {
        page = table_[static_cast<std::size_t>(batch * columns_ + token / page_tokens_)];
        row = token % page_tokens_;
        here = std::min(here, page_tokens_ - row);
      }
      for (std::int64_t head = 0; head < source.shape[1]; ++head)
        copy_bytes(exec, place(target, to_batch, head, done), place(source, page, head, row),
                   here * source.strides[2]);
      done += here;
    }
  });
}

QuantizedTensor KvCache::gathered(const QuantizedTensor& from, std::int64_t tokens) const {
  Shape shape = from.shape;
  shape[0] = batches();
  shape[2] = tokens;
  QuantizedTensor to = empty(shape, from.scaling, nullptr);
  for (std::int64_t batch = 0; batch < batches(); ++batch)
    copy_tokens(from, to, batch, 0, std::min(tokens, lengths_[static_cast<std::size_t>(batch)]),
                batch);
  if (!is_on_cpu()) device_api(device_).wait(exec_on(nullptr));
  return to;
}

void KvCache::reserve(std::int64_t tokens, void* stream) {
  check(tokens >= 0, ErrorCode::invalid_argument, kOp, "got room for ", tokens,
        " tokens; expected at least 0");
  make_room(std::vector<std::int64_t>(lengths_.size(), tokens), stream);
  if (page_tokens_ > 0) reserved_ = std::max(reserved_, pages_for(tokens));
}

std::int64_t KvCache::pages_for(std::int64_t tokens) const {
  return tokens / page_tokens_ + (tokens % page_tokens_ != 0 ? 1 : 0);
}

void KvCache::make_room(std::span<const std::int64_t> tokens, void* stream) {
  if (page_tokens_ > 0) return make_pages(tokens, stream);
  const std::int64_t most = std::ranges::max(tokens);
  if (most <= k_.shape[2]) return;
  Shape k_shape = k_.shape, v_shape = v_.shape;
  k_shape[2] = v_shape[2] = std::max(most, 2 * k_.shape[2]);
  QuantizedTensor k = enlarged(k_, k_shape, stream), v = enlarged(v_, v_shape, stream);
  k_ = std::move(k);
  v_ = std::move(v);
}

void KvCache::grow_pool(std::int64_t pages, void* stream) {
  check_pages(pages);
  const std::int64_t before = k_.shape[0];
  Shape k_shape = k_.shape, v_shape = v_.shape;
  k_shape[0] = v_shape[0] = pages;
  QuantizedTensor k = enlarged(k_, k_shape, stream), v = enlarged(v_, v_shape, stream);
  k_ = std::move(k);
  v_ = std::move(v);
  // The first ones are taken first.
  std::vector<std::int32_t> added;
  for (std::int64_t page = pages - 1; page >= before; --page)
    added.push_back(static_cast<std::int32_t>(page));
  free_.insert(free_.begin(), added.begin(), added.end());
}

// The pool doubles when it is empty, and so does the width of the table.
void KvCache::make_pages(std::span<const std::int64_t> tokens, void* stream) {
  std::int64_t wanted = 0, widest = 0;
  for (std::size_t batch = 0; batch < tokens.size(); ++batch) {
    const std::int64_t pages = pages_for(tokens[batch]);
    check_pages(pages);  // of one batch first, so that their sum stays in range
    wanted += std::max<std::int64_t>(0, pages - taken_[batch]);
    widest = std::max(widest, pages);
  }
  const auto free_pages = static_cast<std::int64_t>(free_.size());
  if (wanted > free_pages)
    grow_pool(std::max(k_.shape[0] + wanted - free_pages, 2 * k_.shape[0]), stream);
  if (widest > columns_) {
    const std::int64_t columns = std::max(widest, 2 * columns_);
    std::vector<std::int32_t> wide(static_cast<std::size_t>(batches() * columns), -1);
    for (std::int64_t batch = 0; batch < batches(); ++batch)
      std::copy_n(table_.begin() + batch * columns_, columns_, wide.begin() + batch * columns);
    if (!is_on_cpu()) device_table_ = values_on(device_, {batches() * columns}, DType::f32, stream);
    table_ = std::move(wide);
    columns_ = columns;
  } else if (wanted == 0) {
    return;
  }
  for (std::size_t batch = 0; batch < tokens.size(); ++batch)
    for (; taken_[batch] < pages_for(tokens[batch]); ++taken_[batch]) {
      table_[batch * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(taken_[batch])] =
          free_.back();
      free_.pop_back();
    }
  write_table(stream);
}

// Pages beyond the lengths go back to the pool, but for what was reserved.
void KvCache::return_pages() {
  for (std::size_t batch = 0; page_tokens_ > 0 && batch < taken_.size(); ++batch)
    while (taken_[batch] > std::max(reserved_, pages_for(lengths_[batch]))) {
      --taken_[batch];
      std::int32_t& entry = table_[batch * static_cast<std::size_t>(columns_) +
                                   static_cast<std::size_t>(taken_[batch])];
      free_.push_back(entry);
      entry = -1;
    }
}

void KvCache::clear(void* stream) {
  std::ranges::fill(lengths_, 0);
  has_lengths_ = true;
  statistics_.clear();
  return_pages();
  write_lengths(stream);
  write_table(stream);
}

}  // namespace octavo
