#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "octavo/backend/registry_internal.h"
#include "octavo/base/error.h"
#include "octavo/base/hash/row_hash_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/pipeline/stream/transpose_internal.h"
#include "octavo/pipeline/stream/window_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

// The index of an element in its tensor, for a message.
std::string place_of(const TensorAction& action, const RowBlock& row_block, std::int64_t index) {
  const Shape& shape = action.weight.shape;
  const std::int64_t cols = shape[shape.rank() - 1];
  const std::int64_t row = row_block.first_row + index / cols, col = index % cols;
  if (shape.rank() == 3) return text("[", row / shape[1], ", ", row % shape[1], ", ", col, "]");
  if (action.part.matrix < 0) return text("[", row, ", ", col, "]");
  const std::int64_t out = action.part.first + row;
  return action.part.transposed ? text("[", action.part.matrix, ", ", col, ", ", out, "]")
                                : text("[", action.part.matrix, ", ", out, ", ", col, "]");
}

template <typename Bits>
void clamp_row(Bits* row, std::int64_t cols, Bits infinity, NonFiniteFound& found) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits most = 0;
  for (std::int64_t i = 0; i < cols; ++i) {
    const Bits magnitude = row[i] & kMagnitude;
    if (magnitude < infinity) most = std::max(most, magnitude);
  }
  for (std::int64_t i = 0; i < cols; ++i) {
    const Bits magnitude = row[i] & kMagnitude;
    if (magnitude < infinity) continue;
    (magnitude == infinity ? found.inf : found.nan) += 1;
    row[i] = magnitude == infinity ? static_cast<Bits>((row[i] & ~kMagnitude) | most) : Bits{0};
  }
}

struct Looking {
  const CheckpointReader& source;
  const TensorAction& action;
  const RowBlock& row_block;
  bool clamp;
  NonFiniteFound& found;
  ContentHash* content;
  decltype(Kernels::largest_bits) largest_entry;
};

// The amax of rows, which are hashed while they are in the L1 cache.
template <typename Bits>
Bits largest_and_content(const View& values, const Looking& at) {
  const auto largest_of = [&](const Bits* data, std::int64_t count) {
    return static_cast<Bits>(at.largest_entry({}, values.dtype, data, count));
  };
  const auto* const data = static_cast<const Bits*>(values.data);
  const std::int64_t rows = values.shape[0], cols = values.shape[1];
  if (at.content == nullptr) return largest_of(data, rows * cols);
  constexpr std::int64_t kTogether = 16384 / sizeof(Bits);
  const std::int64_t step = std::max<std::int64_t>(2, kTogether / std::max<std::int64_t>(1, cols));
  Bits most = 0;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::span together(data + row * cols,
                             static_cast<std::size_t>(std::min(step, rows - row) * cols));
    at.content->sum +=
        content_hash(std::as_bytes(together), cols * static_cast<std::int64_t>(sizeof(Bits)),
                     at.content->first_row + row);
    most = std::max(most, largest_of(together.data(), static_cast<std::int64_t>(together.size())));
  }
  return most;
}

// Bits of the amax after clamping.
template <typename Bits>
Bits look(const View& values, Bits infinity, const Looking& at) {
  auto* const data = static_cast<Bits*>(values.data);
  const std::int64_t rows = values.shape[0], cols = values.shape[1];
  const Bits most = largest_and_content<Bits>(values, at);
  if (most < infinity) return most;
  if (at.clamp) {
    for (std::int64_t row = 0; row < rows; ++row)
      clamp_row(data + row * cols, cols, infinity, at.found);
    return static_cast<Bits>(at.largest_entry({}, values.dtype, data, rows * cols));
  }
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  std::int64_t first = 0;
  while ((data[first] & kMagnitude) < infinity) ++first;
  fail(ErrorCode::invalid_argument, "quantize", "tensor '",
       shown(at.source.tensors()[at.action.tensor].name(), 160), "' has ",
       (data[first] & kMagnitude) == infinity ? "Inf" : "NaN", " at ",
       place_of(at.action, at.row_block, first),
       "; expected finite weights; leave it out (option exclude), or have NaN and Inf clamped "
       "(option nonfinite)");
}

// Scales are f32 or narrower: values beyond f32's range have no scale.
void check_fits_f32(const View& values, std::uint64_t most, const Looking& at) {
  constexpr auto kMax = static_cast<double>(std::numeric_limits<float>::max());
  if (__builtin_bit_cast(double, most) <= kMax) return;
  const auto* const data = static_cast<const double*>(values.data);
  std::int64_t first = 0;
  while (std::fabs(data[first]) <= kMax) ++first;
  fail(ErrorCode::invalid_argument, "quantize", "tensor '",
       shown(at.source.tensors()[at.action.tensor].name(), 160), "' has ", data[first], " at ",
       place_of(at.action, at.row_block, first), "; expected at most ", kMax,
       ", the largest f32; leave it out (option exclude), or scale it down in the source");
}

}  // namespace

View Window::read_values(const CheckpointReader& source, const TensorAction& action,
                         const RowBlock& row_block) {
  const StoredTensor& tensor = source.tensors()[action.tensor];
  const Shape& shape = action.weight.shape;
  const DType dtype = action.weight.source;
  const std::int64_t cols = shape[shape.rank() - 1], size = element_bytes(dtype);
  bytes_.resize(static_cast<std::size_t>(row_block.rows * cols * size));
  const Shape row_block_shape{row_block.rows, cols};
  const auto& sizes = tensor.entry->shape;
  if (!action.part.transposed) {
    std::int64_t row = row_block.first_row;
    if (action.part.matrix >= 0)
      row += action.part.matrix * static_cast<std::int64_t>(sizes[1]) + action.part.first;
    source.read(tensor, static_cast<std::uint64_t>(row * cols * size), bytes_);
    return value_view(bytes_.data(), dtype, row_block_shape);
  }
  // A rectangle of the matrix [in, out]: a piece of each of its rows, then transposed.
  const auto wide = static_cast<std::int64_t>(sizes[2]);
  const auto piece = static_cast<std::size_t>(row_block.rows * size);
  for (std::int64_t in = 0; in < cols; ++in) {
    const std::int64_t at =
        (action.part.matrix * cols + in) * wide + action.part.first + row_block.first_row;
    source.read(tensor, static_cast<std::uint64_t>(at * size),
                std::span(bytes_).subspan(static_cast<std::size_t>(in) * piece, piece));
  }
  transposed_.resize(bytes_.size());
  transpose(bytes_, cols, row_block.rows, dtype, transposed_);
  return value_view(transposed_.data(), dtype, row_block_shape);
}

std::span<const std::byte> Window::read_bytes(const CheckpointReader& source,
                                              const TensorAction& action, const RowBlock& row_block,
                                              std::uint64_t& offset) {
  const StoredTensor& tensor = source.tensors()[action.tensor];
  const RowLayout layout = row_layout(source, action);
  offset = static_cast<std::uint64_t>(row_block.first_row * layout.row_bytes);
  const std::uint64_t end =
      static_cast<std::uint64_t>((row_block.first_row + row_block.rows) * layout.row_bytes);
  bytes_.resize(static_cast<std::size_t>(std::min(end, tensor.nbytes()) - offset));
  source.read(tensor, offset, bytes_);
  return bytes_;
}

float checked_amax(const View& values, const CheckpointReader& source, const TensorAction& action,
                   const RowBlock& row_block, bool clamp, NonFiniteFound& found,
                   ContentHash* content) {
  const auto largest_entry = offered(nullptr, &Kernels::largest_bits, nullptr, "quantize");
  const Looking at{source, action, row_block, clamp, found, content, largest_entry};
  switch (values.dtype) {
    case DType::bf16: {
      const auto bits = look<std::uint16_t>(values, 0x7F80, at);
      return static_cast<float>(decode(bf16_format, bits));
    }
    case DType::f16:
      return static_cast<float>(decode(f16_format, look<std::uint16_t>(values, 0x7C00, at)));
    case DType::f32:
      return __builtin_bit_cast(float, look<std::uint32_t>(values, 0x7F800000U, at));
    case DType::f64:
      check_fits_f32(values, look<std::uint64_t>(values, 0x7FF0000000000000U, at), at);
      return amax(values, {.threads = 1});
    case DType::code:
      break;
  }
  fail(ErrorCode::internal, "quantize", "values are codes");
}

}  // namespace octavo
