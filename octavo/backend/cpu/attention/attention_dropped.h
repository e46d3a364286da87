// Dropout of packed weights: the dropped ones become zero; the epilogue multiplies the rest by its
// factor, so that no format rounds weights otherwise than without dropout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/attention_dropout_mask.h"

namespace octavo::cpu {

// Rows of a query block and the keys [first_key, first_key + keys) of a tile, a multiple of four.
struct DroppedPlace {
  const std::int64_t* row;
  std::int64_t rows, first_key, keys;
};
// [keys / step][width][step] elements of this many bytes.
struct DroppedPanel {
  std::byte* weights;
  std::int64_t width, step, bytes;
};

void drop_weights(const AttentionDropout& dropout, std::int64_t batch, std::int64_t head,
                  const DroppedPlace& at, const DroppedPanel& panel);

// Which of four neighbouring keys' weights are kept, for n rows from `row` on: bit i of kept[r].
void kept_of_rows(const AttentionDropout& dropout, std::int64_t batch, std::int64_t head,
                  const std::int64_t* row, std::int64_t n, std::int64_t group, std::uint32_t* kept);

}  // namespace octavo::cpu
