// One piece of a matrix: the unit of work of a thread and of summation. The partition into pieces
// depends on the shape alone and pieces are added in order, so sums do not depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/report/metrics.h"

namespace octavo {

// Elements of a piece at most. A multiple of the Hadamard transform's 16, so that no group is cut.
inline constexpr std::int64_t kPieceElements = 16 * 1024;

// Exponents of f64, subnormal numbers included.
inline constexpr int kLeastExponent = -1074, kMaxExponent = 1023;
inline constexpr int kExponents = kMaxExponent - kLeastExponent + 1;

// Data common to all pieces.
struct Measurement {
  View values{};
  const QuantizedCopy* copy = nullptr;
  Tensor scales;  // row-major
  MatrixPlan plan{};
  std::int64_t tile_rows = 1, tile_cols = 1;  // extents, never 0
  std::int64_t code_row_bytes = 1, scale_bytes = 1;
  bool rows = false, tiles = false, histograms = false;
  bool rotated = false;          // the codes are of Hadamard-transformed values,
  bool rotated_to_bf16 = false;  // rounded to bf16
  std::uint16_t signs = 0;
  double tensor_scale = 1;
  double unit = 1;                       // ErrorSums::unit
  double past_max = 0, past_lowest = 0;  // unscaled values beyond these saturate
  std::vector<double> decoded;           // by code
  const Kernels* kernels = nullptr;      // the CPU's, or what the caller asked for
  decltype(Kernels::decode) decode_entry = nullptr;

  // The scale of this tile.
  [[nodiscard]] double scale(std::int64_t index) const;
};
// Throws when the arguments of measure_error do not fit each other.
Measurement make_measurement(const View& values, const QuantizedTensor& q,
                             const MetricOptions& options);

// A rectangle of one of the plan's matrices.
struct Piece {
  std::int64_t value_offset = 0, code_offset = 0, scale_offset = 0;  // of the matrix, in bytes
  std::int64_t row = 0, col = 0, rows = 0, cols = 0;
};

// Calls visit(Piece) for all pieces of all matrices, in the order that they are added in.
template <typename Visit>
void for_each_piece(const MatrixPlan& plan, Visit&& visit) {
  for_each_plan_matrix(
      plan, [&](std::int64_t value, std::int64_t code, std::int64_t scale, std::uint64_t) {
        const std::int64_t most_cols = std::min(plan.col.size, kPieceElements),
                           most_rows = std::max<std::int64_t>(1, kPieceElements / plan.col.size);
        for (std::int64_t row = 0; row < plan.row.size; row += most_rows)
          for (std::int64_t col = 0; col < plan.col.size; col += most_cols)
            visit(Piece{value, code, scale, row, col, std::min(most_rows, plan.row.size - row),
                        std::min(most_cols, plan.col.size - col)});
      });
}

// Everything that is summed. Memory of a piece's rows and tiles is kept from one piece to the next.
struct PieceSums {
  ErrorSums sums;
  double result2 = 0, product = 0;
  double max_relative = 0;
  double amax = 0, lost_amax = 0;  // of the pairs that count, and of the finite values of others
  std::int64_t saturated = 0, flushed = 0, finite = 0, zeros = 0;
  NonFiniteCounts input, result;
  std::vector<ErrorSums> rows, tiles;  // of this piece
  std::vector<std::int64_t> exponents, codes;

  // All but rows and tiles, whose places in the tensor differ.
  void add(const PieceSums& other);
};

// Buffers of one thread.
struct PieceScratch {
  std::vector<double> values = std::vector<double>(kPieceElements);
  std::vector<float> narrow = std::vector<float>(kPieceElements);
  std::vector<std::uint16_t> codes = std::vector<std::uint16_t>(kPieceElements);
};

// Into scratch, dense. Types of 16 bits are decoded as the formats that they are.
void load_values(const Measurement& job, const Piece& piece, PieceScratch& scratch);
void load_codes(const Measurement& job, const Piece& piece, PieceScratch& scratch);

void measure_piece(const Measurement& job, const Piece& piece, PieceScratch& scratch,
                   PieceSums& out);

// What to measure values of this amax in: 1, or a power of two (ErrorSums::unit).
[[nodiscard]] double unit_of(double amax);

// Derives the ratios from the sums and counts, for `finite` values and `nbytes` bytes.
void derive_ratios(ErrorMetrics& out, std::int64_t finite, std::int64_t nbytes);

}  // namespace octavo
