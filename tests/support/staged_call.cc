#include "tests/support/staged_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "octavo/base/error.h"

namespace octavo::support {
namespace {

constexpr std::byte kGuard{0xC7}, kPoison{0xA5};
// Device memory starts as aligned as this, and copies keep the host's address modulo this: what is
// misaligned on the host is misaligned on the device.
constexpr std::size_t kAlignment = 256;

// 0 makes every buffer an allocation of its exact size, so that a memory checker sees reads beyond
// it as well; guard bytes hide those from it.
std::size_t guard_bytes() {
  static const std::size_t kBytes = [] {
    const char* const asked = std::getenv("OCTAVO_TEST_GUARD");
    return asked != nullptr ? static_cast<std::size_t>(std::atoll(asked)) : std::size_t{256};
  }();
  return kBytes;
}

struct Extent {
  std::int64_t first = 0, last = 0;  // bytes from the matrix's data; last is one beyond
};

std::int64_t unit_bytes(const Matrix& matrix) {
  return matrix.packed ? packed_row_bytes(matrix.cols, matrix.format)
                       : element_bytes(matrix.dtype, matrix.format);
}

Extent extent_of(const Matrix& matrix) {
  const std::int64_t along_rows = (matrix.rows - 1) * matrix.row_pitch,
                     along_cols = matrix.packed ? 0 : (matrix.cols - 1) * matrix.col_stride;
  return {std::min<std::int64_t>(along_rows, 0) + std::min<std::int64_t>(along_cols, 0),
          std::max<std::int64_t>(along_rows, 0) + std::max<std::int64_t>(along_cols, 0) +
              unit_bytes(matrix)};
}

bool is_empty(const Matrix& matrix) { return matrix.rows == 0 || matrix.cols == 0; }

}  // namespace

StagedCall::StagedCall(const DeviceApi& api, const Exec& exec) : api_(api), exec_(exec) {
  exec_.device = {DeviceKind::cuda, 0};
  exec_.stream = nullptr;
  exec_.workspace = {};
}

StagedCall::~StagedCall() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.memory == nullptr) continue;
    if (guard_bytes() == 0) {
      api_.free_lasting(exec_.device.index, buffer.memory);
    } else {
      api_.release(exec_, buffer.memory);
    }
  }
}

void StagedCall::reads(const QuantizedMatrix& matrix) {
  reads(matrix.codes);
  reads(matrix.scales);
  reads(matrix.tensor_scale);
}

void StagedCall::reads(const QuantizeSource& source) {
  source.is_quantized() ? reads(source.quantized) : reads(source.values);
  if (source.producer != nullptr) reads(*source.producer, source.rows());
}

void StagedCall::reads(const Producer& producer, std::int64_t rows) {
  reads(producer.weight);
  reads(producer.bias);
  for (const float* kept : {producer.mean, producer.inv_std})
    add(kept, static_cast<std::size_t>(rows) * sizeof(float), true);
}

void StagedCall::updates(const float* number) {
  reads(number);
  add(number, sizeof(float), true);
}

void StagedCall::updates(const Counts* counts) {
  add(counts, sizeof(Counts), false);
  add(counts, sizeof(Counts), true);
}

void StagedCall::updates(const std::int64_t* number) {
  add(number, sizeof(std::int64_t), false);
  add(number, sizeof(std::int64_t), true);
}

void StagedCall::add(const Matrix& matrix, bool written) {
  if (matrix.data == nullptr || is_empty(matrix)) return;
  const auto at = reinterpret_cast<Address>(matrix.data);
  const Extent extent = extent_of(matrix);
  join(at + static_cast<Address>(extent.first), at + static_cast<Address>(extent.last), !written,
       written);
  if (written) outputs_.push_back(matrix);
}

void StagedCall::reads(const AttentionOperand& operand, std::int64_t batches, std::int64_t heads) {
  add_all(operand, batches, heads, false);
}
void StagedCall::writes(const AttentionOperand& operand, std::int64_t batches, std::int64_t heads) {
  add_all(operand, batches, heads, true);
}

// Pitches between heads are those of the host, so that one buffer has all of them.
void StagedCall::add_all(const AttentionOperand& operand, std::int64_t batches, std::int64_t heads,
                         bool written) {
  const auto each = [&](const std::function<void(const Matrix&)>& visit, bool of_scales) {
    for (std::int64_t batch = 0; batch < batches; ++batch)
      for (std::int64_t head = 0; head < heads; ++head) {
        const GemmOperand there = operand.at(batch, head);
        const Matrix& matrix = of_scales ? there.quantized.scales : there.elements();
        if (matrix.data != nullptr && !is_empty(matrix)) visit(matrix);
      }
  };
  for (const bool of_scales : {false, true}) {
    Address begin = ~Address{0}, end = 0;
    each(
        [&](const Matrix& matrix) {
          const Extent extent = extent_of(matrix);
          const auto at = reinterpret_cast<Address>(matrix.data);
          begin = std::min(begin, at + static_cast<Address>(extent.first));
          end = std::max(end, at + static_cast<Address>(extent.last));
        },
        of_scales);
    if (begin < end) join(begin, end, !written, written);
    if (written) each([&](const Matrix& matrix) { outputs_.push_back(matrix); }, of_scales);
  }
  reads(operand.first.quantized.tensor_scale);
}

void StagedCall::add(const void* memory, std::size_t bytes, bool written) {
  const auto size = static_cast<std::int64_t>(bytes);
  add(Matrix{.data = const_cast<void*>(memory),
             .dtype = DType::code,
             .format = {.exponent_bits = 4, .mantissa_bits = 3},
             .rows = 1,
             .cols = size,
             .row_pitch = size,
             .col_stride = 1},
      written);
}

// Ranges that overlap share a buffer: a conversion in place must be one on the device too.
void StagedCall::join(Address begin, Address end, bool read, bool written) {
  Buffer joined{.begin = begin, .end = end, .read = read, .written = written};
  std::erase_if(buffers_, [&](const Buffer& old) {
    if (old.end <= joined.begin || joined.end <= old.begin) return false;
    joined.begin = std::min(joined.begin, old.begin);
    joined.end = std::max(joined.end, old.end);
    joined.read |= old.read;
    joined.written |= old.written;
    return true;
  });
  buffers_.push_back(std::move(joined));
}

void StagedCall::start() {
  for (Buffer& buffer : buffers_) fill(buffer);
  for (const Matrix& output : outputs_) allow(output);
  for (const Buffer& buffer : buffers_)
    api_.copy(exec_, buffer.memory, buffer.before.data(), buffer.before.size());
}

void StagedCall::fill(Buffer& buffer) const {
  const std::size_t size = buffer.end - buffer.begin;
  buffer.lead = guard_bytes() + buffer.begin % kAlignment;
  const std::size_t total = buffer.lead + size + guard_bytes();
  buffer.memory = static_cast<std::byte*>(guard_bytes() == 0 ? api_.allocate_lasting(exec_, total)
                                                             : api_.allocate(exec_, total));
  check(reinterpret_cast<Address>(buffer.memory) % kAlignment == 0, ErrorCode::internal, "staging",
        "device memory is not aligned to ", kAlignment, " bytes");
  buffer.before.assign(total, kGuard);
  buffer.may_change.assign(total, 0);
  std::memcpy(&buffer.before[buffer.lead], reinterpret_cast<const void*>(buffer.begin), size);
}

// Marks the bytes of an output's elements, and poisons them unless they are an input as well.
void StagedCall::allow(const Matrix& matrix) {
  Buffer& buffer = buffers_[buffer_of(reinterpret_cast<Address>(matrix.data))];
  const std::size_t start = buffer.lead + (reinterpret_cast<Address>(matrix.data) - buffer.begin);
  const auto mark = [&](std::int64_t offset, std::int64_t bytes) {
    const std::size_t at = start + static_cast<std::size_t>(offset);
    const auto count = static_cast<std::size_t>(bytes);
    std::memset(&buffer.may_change[at], 1, count);
    if (!buffer.read) std::memset(&buffer.before[at], static_cast<int>(kPoison), count);
  };
  const std::int64_t unit = unit_bytes(matrix);
  const bool whole_rows = matrix.packed || matrix.col_stride == unit;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::int64_t at = row * matrix.row_pitch;
    if (whole_rows) {
      mark(at, matrix.packed ? unit : unit * matrix.cols);
      continue;
    }
    for (std::int64_t col = 0; col < matrix.cols; ++col) mark(at + col * matrix.col_stride, unit);
  }
}

void StagedCall::finish() {
  for (const Buffer& buffer : buffers_) {
    std::vector<std::byte> after(buffer.before.size());
    api_.copy(exec_, after.data(), buffer.memory, after.size());
    api_.wait(exec_);
    compare(buffer, after);
    if (buffer.written)
      std::memcpy(reinterpret_cast<void*>(buffer.begin), &after[buffer.lead],
                  buffer.end - buffer.begin);
  }
}

void StagedCall::compare(const Buffer& buffer, const std::vector<std::byte>& after) const {
  const std::size_t size = buffer.end - buffer.begin;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] == buffer.before[i] || buffer.may_change[i] != 0) continue;
    const auto at = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(buffer.lead);
    ADD_FAILURE() << api_.kernels->name << " changed byte " << at << " of a buffer of " << size
                  << " bytes (an " << (buffer.written ? "output" : "input")
                  << "), which was not its to write";
    return;
  }
}

std::size_t StagedCall::buffer_of(Address address) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (address >= buffers_[i].begin && address < buffers_[i].end) return i;
  fail(ErrorCode::internal, "staging", "memory that was not said to be touched");
}

void* StagedCall::moved(const void* host) const {
  if (host == nullptr) return nullptr;
  const auto address = reinterpret_cast<Address>(host);
  const Buffer& buffer = buffers_[buffer_of(address)];
  return buffer.memory + buffer.lead + (address - buffer.begin);
}

Matrix StagedCall::there(Matrix matrix) const {
  if (!is_empty(matrix)) matrix.data = moved(matrix.data);
  return matrix;
}

QuantizedMatrix StagedCall::there(QuantizedMatrix matrix) const {
  matrix.codes = there(matrix.codes);
  matrix.scales = there(matrix.scales);
  matrix.tensor_scale = there(matrix.tensor_scale);
  return matrix;
}

Producer StagedCall::there(Producer producer) const {
  producer.weight = there(producer.weight);
  producer.bias = there(producer.bias);
  producer.mean = there(producer.mean);
  producer.inv_std = there(producer.inv_std);
  return producer;
}

AttentionOperand StagedCall::there(AttentionOperand operand) const {
  if (operand.first.is_quantized()) {
    operand.first.quantized = there(operand.first.quantized);
  } else {
    operand.first.values = there(operand.first.values);
  }
  return operand;
}

QuantizeSource StagedCall::there(QuantizeSource source) {
  if (source.producer != nullptr) {
    producer_ = there(*source.producer);
    source.producer = &producer_;
  }
  if (source.is_quantized()) {
    source.quantized = there(source.quantized);
  } else {
    source.values = there(source.values);
  }
  return source;
}

}  // namespace octavo::support
