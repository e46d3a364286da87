// Rows of a GEMM operand, decoded to the element type of packed panels, a piece of a row at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"

namespace octavo::cpu {

// Which scales are applied to the elements while packing; the others are left to scales(), which
// multiply sums.
enum class AppliedScales : std::uint8_t {
  none,
  tiles,  // those that change along K: exact in bf16 where GemmScaleRange says so
  all,    // rounded once; f32 panels only
};

// The codes of a format of up to six bits as integers in units of its smallest value.
const std::int8_t* integers_of(const Format& format);

class GemmOperandRows {
 public:
  GemmOperandRows(const Isa& isa, const GemmOperand& operand, const GemmMethod& method,
                  AppliedScales applied_scales, PanelOf side = PanelOf::a);

  [[nodiscard]] std::int64_t rows() const { return operand_.rows(); }

  // n elements from (row, k) on, at most kMaxKc, k a multiple of 8. Uses `stage` unless the
  // operand's memory has that type already.
  const std::byte* piece(std::int64_t row, std::int64_t k, std::int64_t n, std::byte* stage) const;

  // Packs several rows into a panel. Returns false, with nothing done, where rows must
  // be packed one by one. Codes are decoded, and scaled where scales are applied, in registers; of
  // values with contiguous columns each cache line is read once for all rows.
  bool pack(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
            std::byte* panel) const;

  // The same from packed weights that have the method's order (in_panels), `wanted` elements from k
  // on, zeros beyond the edge.
  [[nodiscard]] bool in_panels() const { return in_panels_; }
  bool unpack(std::int64_t first_row, int count, std::int64_t k, std::int64_t wanted,
              std::byte* panel) const;

  // Packed weights that are a panel as they are: values, and integers; else null.
  [[nodiscard]] const std::byte* panel_in_place(std::int64_t first_row, std::int64_t k,
                                                std::int64_t n) const;

  // Decodes n elements from k on of several rows and multiplies them by the panel of A of `job` in
  // one kernel. Returns false, with nothing done, where there is none.
  bool multiply(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                const MicrokernelJob& job) const;

  // Is there more than one factor along K that is left to the sums?
  [[nodiscard]] bool scales_change() const;

  // Are the factors that are left to the sums the same for all of these rows?
  [[nodiscard]] bool have_one_scale(std::int64_t first_row, std::int64_t count) const;

  // Column-major: values for f32 panels whose neighbour in the next row is next in memory?
  [[nodiscard]] bool in_columns() const { return in_columns_; }
  // If so: element k of n rows, at most kMaxKc.
  const float* column(std::int64_t first_row, std::int64_t k, std::int64_t n, float* stage) const;

  // The beginning of a panel of packed weights, which is read soon.
  void prefetch(std::int64_t first_row, std::int64_t k) const;

  // The undecoded codes, a byte for each.
  const std::byte* codes(std::int64_t row, std::int64_t k, std::int64_t n, std::byte* stage) const;

  // Codes of four bits, two in a byte, and no stride between bytes?
  [[nodiscard]] bool in_nibbles() const;
  [[nodiscard]] const std::byte* nibbles(std::int64_t row, std::int64_t k) const;

  // The factor of each run of a piece that is left to the sums: out[i * pitch] for run i.
  void scales(std::int64_t row, std::int64_t k, std::int64_t run, std::int64_t runs, float* out,
              std::int64_t pitch) const;

 private:
  [[nodiscard]] bool packs_scales() const;
  [[nodiscard]] std::int64_t padded_cols() const;  // elements of a row that are in memory
  [[nodiscard]] const std::byte* words(std::int64_t first_row, std::int64_t k) const;
  template <typename Use>
  bool with_codes(std::int64_t first_row, int count, std::int64_t k, std::int64_t n,
                  std::byte* panel, const Use& use) const;
  // The scales of n tiles of a row of tiles.
  void load_tile_scales(std::int64_t row, std::int64_t first, std::int64_t n, float* to) const;
  // Values as f32; f32 values are returned in place.
  const float* widened(const void* values, std::int64_t n, float* stage) const;
  const std::byte* f32_piece(std::int64_t row, std::int64_t k, std::int64_t n,
                             std::byte* stage) const;
  [[nodiscard]] float level() const;  // the per-tensor scale of two-level scales (NVFP4)

  const Isa& isa_;
  const GemmOperand& operand_;
  const GemmMethod& method_;
  AppliedScales applied_scales_;
  Decoder decoder_{};
  ScaleDecoder scale_decoder_{};
  DecodeSpan decode_ = nullptr;
  DecodeScaled decode_scaled_ = nullptr;  // where tile scales are applied to bf16 panels
  PackCodes pack_codes_ = nullptr;
  MultiplyCodes multiply_codes_ = nullptr;
  bool in_columns_ = false, in_panels_ = false;
  bool scale_codes_ = false;  // kernels decode the scales of tiles (GemmMethod::scale_codes)
  std::int64_t tile_rows_ = 1, tile_cols_ = 1;
  float unit_ = 1.0F;  // the value of an element of 1, before scales
};

}  // namespace octavo::cpu
