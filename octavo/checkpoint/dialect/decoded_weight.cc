#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/decoded_weight_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

class OfDialect : public DecodedWeight {
 public:
  OfDialect(Dialect dialect, FoundWeight found)
      : DecodedWeight(found.weight.name, found.weight.shape, found.weight.source,
                      row_block_rows(dialect, found.weight)),
        dialect_(dialect),
        found_(std::move(found)) {}

  [[nodiscard]] std::vector<std::string> tensors() const override {
    std::vector<std::string> out;
    for (const DialectTensor& tensor : found_.tensors) out.push_back(tensor.plan.name);
    return out;
  }

 private:
  [[nodiscard]] Tensor decode_rows(const CheckpointReader& checkpoint, std::int64_t first,
                                   std::int64_t rows) const override {
    return dequantize(read_row_block(checkpoint, dialect_, found_, first, rows), source(),
                      {.threads = 1});
  }

  Dialect dialect_;
  FoundWeight found_;
};

}  // namespace

DecodedWeight::~DecodedWeight() = default;

void DecodedWeight::read(const CheckpointReader& checkpoint, std::uint64_t offset,
                         std::span<std::byte> into) const {
  if (into.empty()) return;
  const std::int64_t cols = shape_[shape_.rank() - 1];
  const auto row_bytes = static_cast<std::uint64_t>(cols * element_bytes(source_));
  const std::int64_t rows = element_count(shape_) / cols, unit = rows_together_;
  const std::uint64_t end = offset + into.size();
  const auto last = static_cast<std::int64_t>((end + row_bytes - 1) / row_bytes);
  // A unit at a time where it may be a matrix of a stack; else all that was asked for.
  std::int64_t row = static_cast<std::int64_t>(offset / row_bytes) / unit * unit;
  const std::int64_t step =
      shape_.rank() == 3 ? unit : std::max(unit, (last - row + unit - 1) / unit * unit);
  for (; row < last; row += step) {
    const Tensor values = decode_rows(checkpoint, row, std::min(step, rows - row));
    const std::span<const std::byte> bytes = values.bytes();
    const std::uint64_t begins = static_cast<std::uint64_t>(row) * row_bytes;
    const std::uint64_t from = std::max(begins, offset);
    const std::uint64_t to = std::min(begins + bytes.size(), end);
    std::memcpy(into.data() + (from - offset), bytes.data() + (from - begins), to - from);
  }
}

std::unique_ptr<const DecodedWeight> decoded_weight(Dialect dialect, FoundWeight found) {
  return std::make_unique<OfDialect>(dialect, std::move(found));
}

}  // namespace octavo
