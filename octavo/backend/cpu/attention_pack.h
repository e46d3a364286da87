// Rows of Q, K and V on their way to where they are multiplied. Keys and values of a head are
// packed once, tile by tile, and then read by every strip of query rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/attention.h"
#include "octavo/backend/cpu/gemm_lanes.h"

namespace octavo::cpu {

// Scales that are left out of rows, and given apart.
enum class Split : std::uint8_t {
  none,
  row,  // where one serves a whole row: scale()
  // Of values that are to be exact in bf16 (is_bf16_by_tile): where one serves all rows of a tile,
  // scale(), or a whole channel, channel_scales(). Powers of two stay where they are.
  tile_or_channel,
};

// Rows of an operand in f32, as the job takes them.
class AttentionRows {
 public:
  AttentionRows(const Isa& isa, const GemmOperand& operand, DType values, Split split);

  [[nodiscard]] std::int64_t cols() const { return operand_.cols(); }
  // `stage` has room for kMostHeadSize, and is where they are then.
  void row(std::int64_t row, float* stage) const;
  [[nodiscard]] float scale(std::int64_t row) const;
  void scales(std::int64_t first, std::int64_t count, float* to) const;
  // cols() of them; false: they are in the rows.
  bool channel_scales(float* to) const;

 private:
  const Isa& isa_;
  GemmOperand operand_;
  bool rounds_to_bf16_ = false, split_ = false, split_channels_ = false;
  OperandLanes lanes_;
};

// What a method leaves out of lanes: of Q and K, and of V.
inline Split score_split(const AttentionMethod& method) {
  return has_row_units(method.score_lane) ? Split::row : Split::none;
}
inline Split weigh_split(const AttentionMethod& method) {
  return method.weigh_lane == Lane::bf16 ? Split::tile_or_channel : Split::none;
}

class CodedRows;  // attention_codes.h: the same rows, as codes

bool is_finite_row(const float* values, std::int64_t n);

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
  bool odd_keys, odd_values;
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
                  std::byte* panel, float* units, bool* odd);

}  // namespace octavo::cpu
