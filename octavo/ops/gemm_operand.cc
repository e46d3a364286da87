#include <algorithm>
#include <cstdint>
#include <string>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/ops/operand_rows_internal.h"
#include "octavo/quant/quantize_plan_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

// Checks that tiles run along K: a scale must be shared by consecutive elements of K. The grid of
// scales has been checked.
void check_direction(const QuantizedTensor& tensor, std::string_view op, std::string_view name) {
  const Scaling& scaling = tensor.scaling;
  const int rank = tensor.shape.rank();
  if (rank < 2 || scaling.tile == Tile{0, 0}) return;
  check(axis_of(scaling, rank) == rank - 1, ErrorCode::invalid_argument, op, name,
        " is quantized along axis ", scaling.axis,
        ", and the product sums along the last one; quantize it with axis = -1");
  check(scaling.tile.cols != 1 || tensor.shape[rank - 1] <= 1, ErrorCode::invalid_argument, op,
        name, " is quantized along the wrong direction: its tiles are ",
        scaling.tile.rows == 0 ? "whole columns" : "one column wide",
        ", and the product sums along rows; quantize the transpose, or use tiles along the last "
        "dimension");
}

// Of numbers, without signs. The stride is a constant where it is 1, so that this is done sixteen
// at a time.
[[gnu::always_inline]] inline std::uint8_t largest_field(const Format& format,
                                                         const std::uint8_t* codes, std::int64_t n,
                                                         std::int64_t stride = 1) {
  const auto mask = static_cast<std::uint8_t>(format.magnitude_mask()),
             most = static_cast<std::uint8_t>(format.max_field());
  std::uint8_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto field = static_cast<std::uint8_t>(codes[i * stride] & mask);
    const std::uint8_t number = field <= most ? field : std::uint8_t{0};
    largest = number > largest ? number : largest;
  }
  return largest;
}

}  // namespace

void check_grid(const QuantizedTensor& tensor, std::string_view op, std::string_view name) {
  const Shape &codes = tensor.rowwise.codes.shape(), &scales = tensor.rowwise.scales.shape();
  if (codes != tensor.shape)
    fail(ErrorCode::invalid_argument, op, name, " is of shape ", to_string(tensor.shape),
         " and has codes of shape ", to_string(codes));
  const Shape wanted = scale_shape(tensor.shape, tensor.scaling);
  if (scales != wanted)
    fail(ErrorCode::invalid_argument, op, name, " has scales of shape ", to_string(scales),
         ", and its tiles (", describe(tensor.scaling), ") form a grid of ", to_string(wanted),
         "; quantized_from puts codes and scales together");
}

std::optional<View> with_rows_collapsed(const View& view) {
  const int rank = view.shape.rank();
  if (rank <= 2) return view;
  const bool is_empty = element_count(view.shape) == 0;  // then strides say nothing
  std::int64_t rows = view.shape[rank - 2], stride = view.strides[rank - 2];
  for (int i = rank - 3; i >= 0; --i) {
    if (view.shape[i] == 1) continue;
    if (rows != 1 && !is_empty && view.strides[i] != stride * rows) return std::nullopt;
    if (rows == 1) stride = view.strides[i];
    rows *= view.shape[i];
  }
  View collapsed = view;
  collapsed.shape = {rows, view.shape[rank - 1]};
  collapsed.strides = {stride, view.strides[rank - 1]};
  return collapsed;
}

Matrix matrix_at(const View& stack, std::span<const std::int64_t> position) {
  const int rank = stack.shape.rank();
  std::int64_t offset = 0;
  // A stack without leading dimensions is the same matrix at every position.
  if (rank > 2)
    for (int i = 0; i < rank - 2; ++i)
      offset += position[static_cast<std::size_t>(i)] * stack.strides[i];
  return {.data = static_cast<std::byte*>(stack.data) + offset,
          .dtype = stack.dtype,
          .format = stack.format,
          .packed = stack.packed,
          .rows = stack.shape[rank - 2],
          .cols = stack.shape[rank - 1],
          .row_pitch = stack.strides[rank - 2],
          .col_stride = stack.strides[rank - 1]};
}

double largest_code(const Matrix& codes) {
  const Format& format = codes.format;
  if (codes.dtype != DType::code || codes.packed || format.bits() != 8 || !format.is_signed ||
      format.twos_complement)
    return 0.0;
  GemmOperand operand;
  operand.quantized.codes = codes;
  const double least = f16_factor(operand);
  std::uint8_t largest = 0;
  for (std::int64_t row = 0; row < codes.rows; ++row) {
    const auto* at = static_cast<const std::uint8_t*>(codes.data) + row * codes.row_pitch;
    largest = std::max(largest, codes.col_stride == 1
                                    ? largest_field(format, at, codes.cols)
                                    : largest_field(format, at, codes.cols, codes.col_stride));
    // All zeros: any factor will do.
    operand.largest_code = std::max(decode(format, std::uint32_t{largest}), min_positive(format));
    // Codes that were scaled have large ones in every row.
    if (f16_factor(operand) == least) break;
  }
  return operand.largest_code;
}

OperandStack::OperandStack(const Operand& operand, std::string_view op, std::string_view name)
    : name_(name) {
  const int rank = operand.shape().rank();
  if (rank < 2)
    fail(ErrorCode::invalid_argument, op, name, " has shape ", to_string(operand.shape()),
         "; expected at least two dimensions: rows, and what is summed along");
  if (const QuantizedTensor* tensor = operand.quantized()) {
    check(tensor->rowwise.exists(), ErrorCode::invalid_argument, op, name,
          " has a columnwise copy only, which is that of its transpose; give transposed(", name,
          ") where the product wants the transpose, or quantize it rowwise");
    check_grid(*tensor, op, name);
    check_direction(*tensor, op, name);
    elements_ = tensor->rowwise.codes.view();
    scales_ = tensor->rowwise.scales.view();
    scaling_ = &tensor->scaling;
    if (tensor->rowwise.tensor_scale.owner() != nullptr)
      tensor_scale_ = tensor->rowwise.tensor_scale.view();
    return;
  }
  elements_ = operand.values();
  check_view(elements_, op, name);
  check(is_value(elements_.dtype), ErrorCode::wrong_type, op, name,
        " holds codes without scales; give a QuantizedTensor (quantized_from puts codes and scales "
        "together), or values");
}

OperandStack::OperandStack(const PackedWeights& weights, std::string_view name) : name_(name) {
  elements_ = weights.elements.view();
  elements_.shape = weights.shape;  // without what pads it
  if (weights.panels.exists()) in_panels_ = &weights;
  if (!weights.scaling) return;
  scaling_ = &*weights.scaling;
  scales_ = weights.scales.view();
  if (weights.tensor_scale.owner() != nullptr) tensor_scale_ = weights.tensor_scale.view();
}

Shape OperandStack::lead() const {
  return Shape(elements_.shape.sizes().first(static_cast<std::size_t>(elements_.shape.rank() - 2)));
}

GemmOperand OperandStack::at(std::span<const std::int64_t> position) const {
  GemmOperand operand;
  if (depth() == 0) {  // no memory to point to, and nothing to say about it
    operand.values = {.rows = rows(), .cols = 0};
    return operand;
  }
  Matrix elements = matrix_at(elements_, position);
  if (in_panels_ != nullptr) elements.panels = in_panels_->panels;
  if (scaling_ == nullptr) {
    operand.values = elements;
    return operand;
  }
  QuantizedMatrix& quantized = operand.quantized;
  quantized.codes = elements;
  quantized.tile = scaling_->tile;
  quantized.tensor_scale = static_cast<float*>(tensor_scale_.data);
  if (scales_.shape.rank() > 0) {
    quantized.scales = matrix_at(scales_, position);
  } else {
    quantized.scales = {.data = scales_.data,
                        .dtype = scales_.dtype,
                        .format = scales_.format,
                        .rows = 1,
                        .cols = 1};
  }
  return operand;
}

std::optional<OperandStack> OperandStack::collapsed() const {
  // Rows of different matrices are in one tile only where everything is.
  if (scaling_ != nullptr && elements_.shape.rank() > 2) {
    const Tile& tile = scaling_->tile;
    const bool per_tensor = tile == Tile{0, 0},
               whole_tiles = tile.rows > 0 && rows() % tile.rows == 0;
    if (!whole_tiles && !per_tensor) return std::nullopt;
  }
  OperandStack collapsed = *this;
  const std::optional<View> elements = with_rows_collapsed(elements_);
  const std::optional<View> scales =
      scales_.shape.rank() > 0 ? with_rows_collapsed(scales_) : std::optional<View>(scales_);
  if (!elements || !scales) return std::nullopt;
  collapsed.elements_ = *elements;
  collapsed.scales_ = *scales;
  return collapsed;
}

OperandStack OperandStack::rows_from(std::int64_t first, std::int64_t count) const {
  OperandStack part = *this;
  part.elements_ = rows_of(elements_, first, count);
  if (scales_.shape.rank() == 0) return part;
  const std::int64_t tile = tile_extent(scaling_->tile.rows, rows());
  part.scales_ = rows_of(scales_, first / tile, tile_count(tile, count));
  return part;
}

void OperandStack::add_views(std::vector<NamedView>& views) const {
  views.push_back({&elements_, name_});
  if (scaling_ == nullptr) return;
  views.push_back({&scales_, name_ == "A" ? "the scales of A" : "the scales of B"});
  if (tensor_scale_.data != nullptr)
    views.push_back(
        {&tensor_scale_, name_ == "A" ? "the tensor scale of A" : "the tensor scale of B"});
}

void check_hadamard(const GemmOperands& operands, std::string_view op) {
  const Scaling *a = operands.a.scaling(), *b = operands.b.scaling();
  const bool a_is = a != nullptr && a->hadamard.rowwise, b_is = b != nullptr && b->hadamard.rowwise;
  if (!a_is && !b_is) return;
  const bool both = a_is && b_is;
  check(both && a->hadamard.signs == b->hadamard.signs, ErrorCode::invalid_argument, op,
        both   ? "A and B are Hadamard-transformed with other signs"
        : a_is ? "A is Hadamard-transformed and B is not"
               : "A is not Hadamard-transformed and B is",
        "; the transforms cancel only where both operands have the same one");
}

}  // namespace octavo
