// Rows of Q, K and V on their way to where they are multiplied. Keys and values of a head are
// packed once, tile by tile, and then read by every strip of query rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_operand_rows.h"

namespace octavo::cpu {

// What a method leaves out of lanes: of Q and K, and of V.
inline FactoredScales score_factoring(const AttentionMethod& method) {
  return has_row_units(method.score_type) ? FactoredScales::row : FactoredScales::none;
}
inline FactoredScales weigh_factoring(const AttentionMethod& method) {
  return method.weigh_type == PackedType::bf16 ? FactoredScales::tile_or_channel
                                               : FactoredScales::none;
}

class CodedRows;  // attention_codes.h: the same rows, as codes

// Where the parts of a packed tile are; all tiles of a job are alike.
class TileLayout {
 public:
  TileLayout(const AttentionMethod& method, std::int64_t depth, std::int64_t width);

  std::int64_t depth, width;                // of Q and K, of V
  std::int64_t padded_depth, padded_width;  // multiples of the kernels' steps and rows
  std::int64_t key_panel, value_panel;      // bytes
  std::int64_t values_at, units_at, factor_at, marks_at;
  std::int64_t bytes;  // a multiple of 64

  // A panel of `cols` queries.
  [[nodiscard]] std::int64_t query_panel(int cols) const;

 private:
  std::int64_t row_bytes_;  // of a row of Q or K
};

struct PackedTile {
  const std::byte *keys, *values;
  const float* units;  // of the lanes of each key, where each has one (has_row_units)
  float factor;        // of lanes of V
  // Whether a row is not finite, and taken for zeros here.
  bool nonfinite_keys, nonfinite_values;
  bool low_keys;  // whether a lower limb is not zero
};
PackedTile tile_at(const TileLayout& layout, const std::byte* memory);

// `count` keys from `first` on; the rest of the tile is zeros.
void pack_tile(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& k,
               const CodedRows& coded_k, const AttentionRows& v, const CodedRows& coded_v,
               std::int64_t first, std::int64_t count, std::byte* memory);

// These rows as one panel of `cols`, times `factor`, and what sums of their lanes are multiplied
// by. A row of -1 is zeros. Rows that are not finite are marked and packed as zeros. Returns
// whether a lower limb is not zero.
bool pack_queries(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& q,
                  const CodedRows& coded_q, const std::int64_t* queries, int cols, float factor,
                  std::byte* panel, float* units, bool* nonfinite);

}  // namespace octavo::cpu
