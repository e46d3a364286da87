// Splits the work into row blocks: what one thread reads, quantizes, measures and writes at a time.
// Row blocks follow from shapes and dialect alone, so that neither bytes nor metrics depend on the
// number of threads or on max_memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Source bytes per row block. About what a core's L2 cache holds beside the results: values are
// still cached when they are quantized, and again when they are measured.
inline constexpr std::int64_t kRowBlockBytes = 512 * 1024;

struct RowBlock {
  std::size_t action = 0;   // index into QuantizePlan::actions
  std::size_t ordinal = 0;  // index among the action's row blocks
  std::int64_t first_row = 0, rows = 0;
};

// Row geometry of an action in the source.
struct RowLayout {
  std::int64_t rows = 0;       // of the action
  std::int64_t row_bytes = 0;  // of [out, in]; the last row of a copied tensor may be shorter
};
[[nodiscard]] RowLayout row_layout(const CheckpointReader& source, const TensorAction& action);

// Ordered by file, then by action; copied tensors are interleaved with quantized ones.
[[nodiscard]] std::vector<RowBlock> split_row_blocks(const CheckpointReader& source,
                                                     const QuantizePlan& plan);
// Those of one file.
[[nodiscard]] std::vector<RowBlock> split_row_blocks(const CheckpointReader& source,
                                                     const QuantizePlan& plan, std::size_t file);

// The maximum memory that a thread needs at once for any of them: windows, codes, and packed bytes.
[[nodiscard]] std::uint64_t row_block_memory(const CheckpointReader& source,
                                             const QuantizePlan& plan,
                                             const std::vector<RowBlock>& row_blocks);

}  // namespace octavo
