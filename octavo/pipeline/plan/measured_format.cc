#include "octavo/pipeline/plan/measured_format_internal.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "octavo/pipeline/plan/row_blocks_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/metrics.h"

namespace octavo {
namespace {

// A tensor as rows of values, some of them in memory.
class ValueRows {
 public:
  ValueRows(const CheckpointReader& source, const TensorAction& action)
      : source_(source), tensor_(source.tensors()[action.tensor]) {
    const auto& shape = tensor_.entry->shape;
    dtype_ = safetensors::element_type(tensor_.entry->type)->dtype;
    cols_ = static_cast<std::int64_t>(shape.back());
    rows_ = static_cast<std::int64_t>(tensor_.nbytes()) / (cols_ * element_bytes(dtype_));
    matrix_rows_ = static_cast<std::int64_t>(shape[shape.size() - 2]);
  }

  // Calls visit(View) for all rows in order, whole tiles at a time; a tile never begins in one
  // matrix of a stack and ends in the next.
  template <typename Visit>
  void each(std::int64_t tile_rows, const Visit& visit) {
    const std::int64_t row_bytes = cols_ * element_bytes(dtype_);
    std::int64_t at_once = std::max<std::int64_t>(1, kRowBlockBytes / row_bytes);
    at_once = std::max(at_once / tile_rows, std::int64_t{1}) * tile_rows;
    for (std::int64_t first = 0; first < rows_;) {
      const std::int64_t left = matrix_rows_ - first % matrix_rows_;
      const std::int64_t count = std::min(at_once, left);
      bytes_.resize(static_cast<std::size_t>(count * row_bytes));
      source_.read(tensor_, static_cast<std::uint64_t>(first * row_bytes), bytes_);
      visit(value_view(bytes_.data(), dtype_, {count, cols_}));
      first += count;
    }
  }
  [[nodiscard]] std::int64_t matrix_rows() const { return matrix_rows_; }

 private:
  const CheckpointReader& source_;
  const StoredTensor& tensor_;
  DType dtype_ = DType::f32;
  std::int64_t cols_ = 0, rows_ = 0, matrix_rows_ = 1;
  std::vector<std::byte> bytes_;
};

}  // namespace

Format measured_format(const CheckpointReader& source, const TensorAction& action) {
  ValueRows values(source, action);
  const Tile tile = action.scaling.tile;
  const bool single = tile == Tile{0, 0};
  float all = 0;
  if (single)
    values.each(1, [&](const View& rows) { all = std::max(all, amax(rows, {.threads = 1})); });
  const std::int64_t high = single ? 1 : tile_extent(tile.rows, values.matrix_rows());
  constexpr std::array<Format, 2> kTried{e4m3fn, e5m2};
  std::array<double, 2> errors{};
  values.each(high, [&](const View& rows) {
    for (std::size_t i = 0; i < kTried.size(); ++i) {
      Scaling scaling = action.scaling;
      scaling.format = kTried[i];
      // What weighs errors is read with the plan's statistics, later.
      if (scaling.policy == AmaxPolicy::wmse) scaling.policy = AmaxPolicy::mse;
      const QuantizedTensor q =
          quantize(rows, scaling, {.threads = 1, .given_amax = single ? &all : nullptr});
      const ErrorMetrics found = measure_error(rows, q, {.threads = 1});
      errors[i] += found.mse * static_cast<double>(found.sums.count);
    }
  });
  return errors[1] < errors[0] ? e5m2 : e4m3fn;
}

}  // namespace octavo
