// A band of a source tensor in memory: read, turned where it lies [in, out], and looked through for
// NaN and Inf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/pipeline/plan/row_blocks_internal.h"
#include "octavo/safetensors/non_finite.h"

namespace octavo {

using NonFiniteFound = safetensors::NonFiniteFound;

class Window {
 public:
  // Values of the band, [rows, K] and dense. They stay until the next call.
  View read_values(const CheckpointReader& source, const TensorAction& action,
                   const RowBlock& row_block);
  // Bytes of a band that is copied; `offset` becomes their place in the tensor.
  std::span<const std::byte> read_bytes(const CheckpointReader& source, const TensorAction& action,
                                        const RowBlock& row_block, std::uint64_t& offset);

 private:
  std::vector<std::byte> bytes_, transposed_;
};

// What content_hash is told and says of a band.
struct ContentHash {
  std::int64_t first_row = 0;
  std::uint64_t sum = 0;
};

// The largest magnitude of dense values. Where there is a NaN or an Inf: throws Error that names
// the tensor and the place; with `clamp` NaN becomes 0 and Inf the largest finite magnitude of its
// row, in place, and `found` is added to. (A row is what every scale with more than one value has
// in common with its tile, and all of it is in one band.) `content`, where there is one, becomes
// the sum of the values as they were before.
[[nodiscard]] float checked_amax(const View& values, const CheckpointReader& source,
                                 const TensorAction& action, const RowBlock& row_block, bool clamp,
                                 NonFiniteFound& found, ContentHash* content = nullptr);

// The content_hash of codes, with their scales.
[[nodiscard]] std::uint64_t content_of(const QuantizedTensor& codes, std::int64_t first_row);

// The first row of a band in the tensor of the source, of a part of a stack too.
[[nodiscard]] std::int64_t row_in_source(const CheckpointReader& source, const TensorAction& action,
                                         const RowBlock& row_block);
// Where the rows of a band are in the weight that was found, which is the stack that experts are
// taken out of. (Experts that are put into one are weights of their own.)
[[nodiscard]] std::int64_t row_in_found(const TensorAction& action, const RowBlock& row_block);

}  // namespace octavo
