// The content hash of what was read of a source.
#include <algorithm>

#include "octavo/base/hash/row_hash_internal.h"
#include "octavo/pipeline/stream/window_internal.h"

namespace octavo {

std::uint64_t content_of(const QuantizedTensor& codes, std::int64_t first_row) {
  constexpr std::uint64_t kOfScales = 0x9FB21C651E98DF25ULL, kOfTensorScale = 0xD6E8FEB86659FD93ULL;
  const auto sum_of = [&](const Tensor& part) {
    const std::span<const std::byte> bytes = part.bytes();
    const auto size = static_cast<std::int64_t>(bytes.size());
    const std::int64_t rows =
        part.shape().rank() > 1 ? std::max<std::int64_t>(1, part.shape()[0]) : 1;
    return bytes.empty() ? 0
                         : content_hash(bytes, size % rows == 0 ? size / rows : size, first_row);
  };
  std::uint64_t sum = sum_of(codes.rowwise.codes) + kOfScales * sum_of(codes.rowwise.scales);
  if (codes.rowwise.tensor_scale.owner() != nullptr)
    sum += kOfTensorScale * sum_of(codes.rowwise.tensor_scale);
  return sum;
}

std::int64_t row_in_source(const CheckpointReader& source, const TensorAction& action,
                           const RowBlock& row_block) {
  if (action.part.matrix < 0) return row_block.first_row;
  const auto& sizes = source.tensors()[action.tensor].entry->shape;
  return row_block.first_row + action.part.first +
         action.part.matrix * static_cast<std::int64_t>(sizes[action.part.transposed ? 2 : 1]);
}

std::int64_t row_in_found(const TensorAction& action, const RowBlock& row_block) {
  const Shape& whole = action.found->weight.shape;
  if (action.part.matrix < 0 || whole.rank() != 3) return row_block.first_row;
  return row_block.first_row + action.part.first + action.part.matrix * whole[1];
}

}  // namespace octavo
