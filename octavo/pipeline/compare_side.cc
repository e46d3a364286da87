#include "octavo/pipeline/compare_side_internal.h"

#include <algorithm>
#include <optional>
#include <span>

#include "octavo/checkpoint/expert_stack.h"
#include "octavo/convert/widen.h"
#include "octavo/pipeline/integer_values_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {

ComparedSide::ComparedSide(const std::string& path)
    : checkpoint_(path), recognized_(recognize(checkpoint_)) {
  for (const FoundWeight& found : recognized_.weights) {
    Numbers numbers{.found = &found};
    numbers.shape.assign(found.weight.shape.sizes().begin(), found.weight.shape.sizes().end());
    for (const DialectTensor& tensor : found.tensors)
      numbers.bytes += checkpoint_.at(tensor.plan.name).nbytes();
    add(found.weight.name, std::move(numbers));
  }
  for (const std::string& name : recognized_.plain) {
    const StoredTensor& tensor = checkpoint_.at(name);
    const auto type = safetensors::element_type(tensor.entry->type);
    const bool integers = is_integer(tensor.entry->type);
    if ((!type && !integers) || (type && type->packed) || tensor.entry->shape.size() > kMaxRank) {
      ++unknown_;
      continue;
    }
    Numbers numbers{.plain = &tensor, .integers = integers, .bytes = tensor.nbytes()};
    numbers.shape.assign(tensor.entry->shape.begin(), tensor.entry->shape.end());
    add(name, std::move(numbers));
  }
}

std::int64_t ComparedSide::unit(const Numbers& numbers) const {
  return numbers.found != nullptr ? row_block_rows(recognized_.dialect, numbers.found->weight) : 1;
}

QuantizedTensor ComparedSide::codes(const Numbers& numbers, std::int64_t first,
                                    std::int64_t rows) const {
  return read_row_block(checkpoint_, recognized_.dialect, *numbers.found, numbers.first + first,
                        rows);
}

Tensor ComparedSide::values(const Numbers& numbers, std::int64_t first, std::int64_t rows) const {
  if (numbers.found != nullptr)
    return dequantize(codes(numbers, first, rows), DType::f32, {.threads = 1});
  if (numbers.transposed) return read_transposed(numbers, first, rows);
  if (numbers.integers) {
    const WideValues all = all_digits(numbers, first, rows);
    Tensor out = Tensor::values({rows, numbers.cols}, DType::f32);
    std::transform(all.value.begin(), all.value.end(), out.span<float>().begin(),
                   [](double value) { return static_cast<float>(value); });
    return out;
  }
  return widened(as_stored(numbers, first, rows));
}

Tensor ComparedSide::wide_values(const Numbers& numbers, std::int64_t first,
                                 std::int64_t rows) const {
  const bool wide = numbers.plain != nullptr && !numbers.transposed &&
                    numbers.plain->entry->type == safetensors::StoredType::f64;
  return wide ? as_stored(numbers, first, rows) : values(numbers, first, rows);
}

WideValues ComparedSide::all_digits(const Numbers& numbers, std::int64_t first,
                                    std::int64_t rows) const {
  if (!numbers.integers) {
    WideValues out;
    const Tensor values = wide_values(numbers, first, rows);
    if (values.view().dtype == DType::f64)
      for (const double value : values.span<double>()) out.add(value);
    else
      for (const float value : values.span<float>()) out.add(static_cast<double>(value));
    return out;
  }
  const auto size =
      static_cast<std::int64_t>(safetensors::stored_bits(numbers.plain->entry->type)) / 8;
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * numbers.cols * size));
  if (!bytes.empty())
    checkpoint_.read(*numbers.plain,
                     static_cast<std::uint64_t>((numbers.first + first) * numbers.cols * size),
                     bytes);
  return integer_values(bytes, numbers.plain->entry->type);
}

std::vector<std::pair<std::string, ComparedNumbers>> ComparedSide::split_experts(
    const std::string& name, const Numbers& whole) const {
  std::vector<std::pair<std::string, Numbers>> out;
  if (whole.shape.size() != 3 || whole.integers) return out;
  const ExpertStack stack = expert_stack(name, [&](const std::string& of) -> std::optional<Shape> {
    const auto found = all_.find(of);
    if (found == all_.end()) return std::nullopt;
    return Shape(std::span<const std::int64_t>(found->second.shape));
  });
  if (!stack.known || stack.interleaved || (stack.in_out && whole.found != nullptr)) return out;
  const Shape shape(std::span<const std::int64_t>(whole.shape));
  const std::int64_t count = matrix_count(stack, shape);
  for (std::int64_t i = 0; i < count; ++i) {
    const ExpertMatrix matrix = expert_matrix(stack, name, shape, i);
    Numbers one = whole;
    one.shape = {matrix.shape[0], matrix.shape[1]};
    one.rows = matrix.shape[0];
    one.cols = matrix.shape[1];
    one.bytes = whole.bytes / static_cast<std::uint64_t>(count);
    one.transposed = stack.in_out;
    one.matrix = matrix.expert;
    one.matrix_cols = shape[2];
    one.first = matrix.first + (stack.in_out ? 0 : matrix.expert * shape[1]);
    if (one.first % unit(whole) != 0) return {};  // it begins within a tile
    out.emplace_back(matrix.module + ".weight", std::move(one));
  }
  return out;
}

Tensor ComparedSide::as_stored(const Numbers& numbers, std::int64_t first,
                               std::int64_t rows) const {
  const auto type = *safetensors::element_type(numbers.plain->entry->type);
  const Shape shape{rows, numbers.cols};
  const Tensor stored = type.dtype == DType::code ? Tensor::codes(shape, type.format)
                                                  : Tensor::values(shape, type.dtype);
  const auto offset = static_cast<std::uint64_t>((numbers.first + first) * numbers.cols *
                                                 element_bytes(type.dtype, type.format));
  if (stored.nbytes() > 0) checkpoint_.read(*numbers.plain, offset, stored.bytes());
  return stored;
}

// Rows of [out, in] from a stack stored as [in, out].
Tensor ComparedSide::read_transposed(const Numbers& numbers, std::int64_t first,
                                     std::int64_t rows) const {
  const auto type = *safetensors::element_type(numbers.plain->entry->type);
  const Tensor stored = Tensor::values({numbers.cols, rows}, type.dtype);
  const std::int64_t size = element_bytes(type.dtype, type.format);
  for (std::int64_t row = 0; row < numbers.cols; ++row) {
    const std::int64_t at =
        (numbers.matrix * numbers.cols + row) * numbers.matrix_cols + numbers.first + first;
    checkpoint_.read(*numbers.plain, static_cast<std::uint64_t>(at * size),
                     stored.bytes().subspan(static_cast<std::size_t>(row * rows * size),
                                            static_cast<std::size_t>(rows * size)));
  }
  const Tensor wide = widened(stored);
  Tensor out = Tensor::values({rows, numbers.cols}, DType::f32);
  const auto from = wide.span<float>(), to = out.span<float>();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < numbers.cols; ++col)
      to[static_cast<std::size_t>(row * numbers.cols + col)] =
          from[static_cast<std::size_t>(col * rows + row)];
  return out;
}

void ComparedSide::add(const std::string& name, Numbers numbers) {
  numbers.cols = numbers.shape.empty() ? 1 : numbers.shape.back();
  numbers.rows = 1;
  for (std::size_t i = 0; i + 1 < numbers.shape.size(); ++i) numbers.rows *= numbers.shape[i];
  all_.emplace(name, std::move(numbers));
}

}  // namespace octavo
