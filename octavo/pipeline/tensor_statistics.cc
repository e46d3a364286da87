#include "octavo/pipeline/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::uint64_t kPiece = 1 << 20;  // bytes, a multiple of every element size

template <typename Stored, typename Value>
void add_all(std::span<const std::byte> bytes, TensorStatistics& into, Value&& value) {
  for (std::size_t at = 0; at + sizeof(Stored) <= bytes.size(); at += sizeof(Stored)) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + at, sizeof(Stored));
    into.add(value(stored));
  }
}

}  // namespace

void TensorStatistics::add(double value) {
  ++count;
  if (std::isnan(value)) {
    ++nan;
    return;
  }
  if (std::isinf(value)) {
    ++inf;
    return;
  }
  zero += value == 0;
  const bool first = finite() == 1;
  least = first ? value : std::min(least, value);
  most = first ? value : std::max(most, value);
  sum += value;
  sum2 += value * value;
}

double TensorStatistics::mean() const {
  return finite() > 0 ? sum / static_cast<double>(finite()) : 0.0;
}

double TensorStatistics::deviation() const {
  if (finite() == 0) return 0;
  const double average = mean();
  return std::sqrt(std::max(0.0, sum2 / static_cast<double>(finite()) - average * average));
}

std::optional<TensorStatistics> statistics_of(const CheckpointReader& checkpoint,
                                              const StoredTensor& tensor) {
  const auto type = safetensors::element_type(tensor.entry->type);
  if (!type || type->packed) return std::nullopt;
  const bool wide = type->dtype == DType::f32 || type->dtype == DType::f64;
  // Up to 16 bits: a table of all values.
  std::vector<double> table;
  if (!wide) {
    const Format format = type->dtype == DType::bf16  ? bf16_format
                          : type->dtype == DType::f16 ? f16_format
                                                      : type->format;
    table.resize(format.code_mask() + std::size_t{1});
    for (std::size_t code = 0; code < table.size(); ++code)
      table[code] = decode(format, static_cast<std::uint32_t>(code));
  }
  TensorStatistics out;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kPiece, tensor.nbytes()));
  for (std::uint64_t at = 0; at < tensor.nbytes(); at += buffer.size()) {
    const std::span<std::byte> piece(buffer.data(),
                                     std::min<std::uint64_t>(buffer.size(), tensor.nbytes() - at));
    checkpoint.read(tensor, at, piece);
    if (type->dtype == DType::f32)
      add_all<float>(piece, out, [](float x) { return static_cast<double>(x); });
    else if (type->dtype == DType::f64)
      add_all<double>(piece, out, [](double x) { return x; });
    else if (table.size() > 256)
      add_all<std::uint16_t>(piece, out, [&](std::uint16_t code) { return table[code]; });
    else
      add_all<std::uint8_t>(piece, out, [&](std::uint8_t code) { return table[code]; });
  }
  return out;
}

TensorStatistics statistics_of(const CheckpointReader& checkpoint, Dialect dialect,
                               const FoundWeight& found) {
  const Shape& shape = found.weight.shape;
  const std::int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const std::int64_t rows = cols > 0 ? element_count(shape) / cols : 0;
  const std::int64_t step = std::max<std::int64_t>(1, row_block_rows(dialect, found.weight));
  TensorStatistics out;
  for (std::int64_t row = 0; row < rows; row += step) {
    const QuantizedTensor row_block =
        read_row_block(checkpoint, dialect, found, row, std::min(step, rows - row));
    const Tensor values = dequantize(row_block, DType::f32);
    for (const float value : values.span<float>()) out.add(static_cast<double>(value));
  }
  return out;
}

}  // namespace octavo
