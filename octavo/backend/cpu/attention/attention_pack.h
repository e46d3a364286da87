// Packing of Q, K and V into the panels that attention microkernels read. Keys and values of a head
// are packed once, tile by tile, and read by every query block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_operand_rows.h"

namespace octavo::cpu {

// Which scales a method factors out of packed elements: of Q and K, and of V.
inline FactoredScales score_factoring(const AttentionMethod& method) {
  return has_row_units(method.score_type) ? FactoredScales::row : FactoredScales::none;
}
inline FactoredScales weigh_factoring(const AttentionMethod& method) {
  return method.weigh_type == PackedType::bf16 ? FactoredScales::tile_or_channel
                                               : FactoredScales::none;
}

class CodedRows;  // attention_codes.h: the same rows, as codes

// Memory layout of a packed tile of K and V; the same for all tiles of a job.
class TileLayout {
 public:
  TileLayout(const AttentionMethod& method, std::int64_t depth, std::int64_t width);

  std::int64_t depth, width;                // of Q and K, of V
  std::int64_t padded_depth, padded_width;  // multiples of the microkernels' K steps and rows (MR)
  std::int64_t key_panel, value_panel;      // bytes
  std::int64_t values_at, units_at, key_factors_at, factor_at, marks_at;
  std::int64_t bytes;  // a multiple of 64

  // A panel of `cols` queries.
  [[nodiscard]] std::int64_t query_panel(int cols) const;

 private:
  std::int64_t row_bytes_;  // of a row of Q or K
};

struct PackedTile {
  const std::byte *keys, *values;
  const float* units;  // of the packed elements of each key, where each has one (has_row_units)
  float factor;        // of packed V
  // [2][tile_keys]: factors of weights and their inverses (key_factors.h), or null.
  const float* key_factors;
  // Whether a row is not finite, and packed as zeros.
  bool nonfinite_keys, nonfinite_values;
  bool low_keys;  // whether a lower limb is not zero
};
PackedTile tile_at(const TileLayout& layout, const std::byte* memory);

struct KeyFactors;  // key_factors.h
// Writes what a tile says about its packed V.
void set_values(const TileLayout& layout, std::byte* memory, const KeyFactors& factors,
                float factor, bool nonfinite);

// Packs `count` keys from `first` on; the rest of the tile is zeros.
void pack_tile(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& k,
               const CodedRows& coded_k, const AttentionRows& v, const CodedRows& coded_v,
               std::int64_t first, std::int64_t count, std::byte* memory);

// Packs these query rows into one panel of `cols`, times `factor`, and sets the units that sums are
// multiplied by. A row of -1 is zeros. Non-finite rows are marked and packed as zeros. Returns
// whether a lower limb is not zero.
bool pack_queries(const AttentionMethod& method, const TileLayout& layout, const AttentionRows& q,
                  const CodedRows& coded_q, const std::int64_t* queries, int cols, float factor,
                  std::byte* panel, float* units, bool* nonfinite);

}  // namespace octavo::cpu
