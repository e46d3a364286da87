#include "octavo/quant/fp8_quantize.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include "octavo/base/error.h"
#include "octavo/quant/scaling.h"

namespace octavo {
namespace {

// The dimensions from the one with the largest stride to the one with the smallest.
struct Order {
  std::array<int, kMaxRank> dims{0, 1, 2, 3, 4, 5, 6, 7};
  static_assert(kMaxRank == 8);

  explicit Order(const View& view) {
    const int rank = view.shape.rank();
    // A dimension of one element may have any stride: it stays beside its right neighbour.
    std::array<std::int64_t, kMaxRank> weight{};
    std::int64_t below = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      weight[at] = view.shape[i] == 1 ? below : std::abs(view.strides[i]);
      if (weight[at] == 0 && view.shape[i] > 1) return;  // repeated: row-major
      below = weight[at];
    }
    const auto used = std::span(dims).first(static_cast<std::size_t>(rank));
    std::stable_sort(used.begin(), used.end(), [&](int a, int b) {
      return weight[static_cast<std::size_t>(a)] > weight[static_cast<std::size_t>(b)];
    });
  }
  [[nodiscard]] int operator[](int i) const { return dims[static_cast<std::size_t>(i)]; }
};

}  // namespace

Fp8Quantized fp8_quantize(const View& values, const QuantizeOptions& options,
                          const Scaling& scaling) {
  check(scaling.tile == Tile{0, 0} && scaling.scale.format == ScaleFormat::f32 && scaling.rowwise &&
            !scaling.columnwise && (!scaling.packed || scaling.format.bits() >= 8),
        ErrorCode::invalid_argument, "fp8_quantize", "got ", describe(scaling),
        "; expected one f32 scale for the tensor, rowwise codes alone, not packed");
  const int rank = values.shape.rank();
  check(values.strides.rank() == rank, ErrorCode::invalid_argument, "fp8_quantize",
        "the input has ", rank, " dimensions but ", values.strides.rank(),
        " strides; give one stride per dimension");
  const Order order(values);
  View ordered = values;
  for (int i = 0; i < rank; ++i) {
    ordered.shape[i] = values.shape[order[i]];
    ordered.strides[i] = values.strides[order[i]];
  }
  // One scale for everything, so the order in which elements are met does not matter.
  const QuantizedTensor quantized = quantize(ordered, scaling, options);
  View codes = quantized.rowwise.codes.view();
  const Shape strides = codes.strides;
  codes.shape = values.shape;
  for (int i = 0; i < rank; ++i) codes.strides[order[i]] = strides[i];
  return {.codes = Tensor::adopt(codes, quantized.rowwise.codes.owner()),
          .scale = quantized.rowwise.scales};
}

}  // namespace octavo
