// A row block of a source tensor in memory: read, transposed where it is stored as [in, out], and
// checked for NaN and Inf.
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
  // Values of the row block, [rows, K] and dense. Valid until the next call.
  View read_values(const CheckpointReader& source, const TensorAction& action,
                   const RowBlock& row_block);
  // Bytes of a row block that is copied; sets `offset` to their position in the tensor.
  std::span<const std::byte> read_bytes(const CheckpointReader& source, const TensorAction& action,
                                        const RowBlock& row_block, std::uint64_t& offset);

 private:
  std::vector<std::byte> bytes_, transposed_;
};

// Input and result of content_hash for a row block.
struct ContentHash {
  std::int64_t first_row = 0;
  std::uint64_t sum = 0;
};

// The amax of dense values. On NaN or Inf: throws Error that names the tensor and the index; with
// `clamp` NaN becomes 0 and Inf the largest finite magnitude of its row, in place, and `found` is
// incremented. (A tile of more than one value covers several values of a row, and a row lies in one
// row block.) `content`, if given, becomes the hash of the values before clamping.
[[nodiscard]] float checked_amax(const View& values, const CheckpointReader& source,
                                 const TensorAction& action, const RowBlock& row_block, bool clamp,
                                 NonFiniteFound& found, ContentHash* content = nullptr);

// The content_hash of codes, with their scales.
[[nodiscard]] std::uint64_t content_of(const QuantizedTensor& codes, std::int64_t first_row);

// The first row of a row block in the source tensor, also for a part of an expert stack.
[[nodiscard]] std::int64_t row_in_source(const CheckpointReader& source, const TensorAction& action,
                                         const RowBlock& row_block);
// The first row of a row block in the found weight, which for split experts is the whole stack.
// (Experts that are merged into a stack are weights of their own.)
[[nodiscard]] std::int64_t row_in_found(const TensorAction& action, const RowBlock& row_block);

}  // namespace octavo
