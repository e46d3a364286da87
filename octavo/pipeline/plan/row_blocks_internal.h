// The work, cut into bands of rows: what one thread reads, quantizes, measures and writes at a
// time. Bands follow from shapes and dialect alone, so that neither bytes nor metrics depend on how
// many threads there are or how much memory they may have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Of the source. About what a core's second-level cache holds beside the results: values are still
// there when they are quantized, and again when they are measured.
inline constexpr std::int64_t kRowBlockBytes = 512 * 1024;

struct RowBlock {
  std::size_t action = 0;   // of QuantizePlan::actions
  std::size_t ordinal = 0;  // among the action's bands
  std::int64_t first_row = 0, rows = 0;
};

// How rows of an action lie in the source.
struct RowLayout {
  std::int64_t rows = 0;       // of the action
  std::int64_t row_bytes = 0;  // of [out, in]; the last row of a copy may be shorter
};
[[nodiscard]] RowLayout row_layout(const CheckpointReader& source, const TensorAction& action);

// By file, and in a file by action; copies stand among what is quantized.
[[nodiscard]] std::vector<RowBlock> split_row_blocks(const CheckpointReader& source,
                                                     const QuantizePlan& plan);

// The most that a thread needs at once for any of them: windows, codes, and spelled bytes.
[[nodiscard]] std::uint64_t row_block_memory(const CheckpointReader& source,
                                             const QuantizePlan& plan,
                                             const std::vector<RowBlock>& row_blocks);

}  // namespace octavo
