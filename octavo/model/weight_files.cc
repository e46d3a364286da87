#include <algorithm>
#include <cstring>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/decoded_weight_internal.h"
#include "octavo/model/weight_files_internal.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/safetensors/stored_type.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "model";

std::optional<Shape> shape_in(const StoredTensor& tensor) {
  const auto& sizes = tensor.entry->shape;
  if (sizes.size() > static_cast<std::size_t>(kMaxRank)) return std::nullopt;
  const std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
  return Shape(std::span<const std::int64_t>(shape));
}

// [rows, last] with all leading dimensions collapsed; a vector is one row.
Shape collapsed(const Shape& shape) {
  const std::int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  return {cols == 0 ? 0 : element_count(shape) / cols, cols};
}

// gpt-oss as it is published is of no dialect; its stacks of codes lie as octavo's do.
Recognized recognized_in(const CheckpointReader& reader) {
  std::vector<FoundWeight> stacks = gpt_oss_stacks(reader);
  if (stacks.empty()) return recognize(reader);
  Recognized out;
  out.quantized = true;
  out.weights = std::move(stacks);
  return out;
}

Tensor reshaped(const Tensor& values, const Shape& shape) {
  return Tensor::adopt(value_view(values.view().data, values.dtype(), shape), values.owner());
}

}  // namespace

WeightFiles::WeightFiles(const std::string& path, std::optional<DType> type, int threads)
    : reader_(path),
      recognized_(recognized_in(reader_)),
      inputs_(reader_, recognized_),
      type_(type),
      threads_(threads) {
  for (const FoundWeight& found : recognized_.weights) found_.emplace(found.weight.name, &found);
}

bool WeightFiles::has(const std::string& name) const {
  return found_.contains(name) || reader_.find(name) != nullptr;
}

std::optional<Shape> WeightFiles::shape_of(const std::string& name) const {
  if (const auto found = found_.find(name); found != found_.end())
    return found->second->weight.shape;
  const StoredTensor* const stored = reader_.find(name);
  return stored == nullptr ? std::nullopt : shape_in(*stored);
}

void WeightFiles::check_shape(const std::string& name, const Shape& wanted) const {
  const std::optional<Shape> shape = shape_of(name);
  if (!shape && has(name))
    fail(ErrorCode::invalid_argument, kOp, "'", shown(name, 200), "' has ",
         reader_.at(name).entry->shape.size(), " dimensions; expected ", to_string(wanted),
         " by the config.json");
  if (!shape)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(reader_.path(), 200), "' has no tensor '",
         shown(name, 200), "', which its config.json asks for; expected one of shape ",
         to_string(wanted));
  if (*shape != wanted)
    fail(ErrorCode::invalid_argument, kOp, "'", shown(name, 200), "' has shape ", to_string(*shape),
         "; expected ", to_string(wanted), " by the config.json");
}

Tensor WeightFiles::stored_rows(const StoredTensor& tensor, std::int64_t first, std::int64_t count,
                                std::int64_t cols) const {
  const auto element = safetensors::element_type(tensor.entry->type);
  check(element && is_value(element->dtype), ErrorCode::unsupported, kOp, "'",
        shown(tensor.name(), 200), "' is ", safetensors::stored_name(tensor.entry->type),
        ", which is no type of values, and no dialect that octavo reads has scales for it");
  const Tensor read = Tensor::values({count, cols}, element->dtype);
  const auto row = static_cast<std::uint64_t>(cols * element_bytes(element->dtype));
  reader_.read(tensor, static_cast<std::uint64_t>(first) * row, read.bytes());
  if (element->dtype == DType::f64) {
    const Tensor narrow = Tensor::values({count, cols}, DType::f32);
    std::ranges::transform(read.span<double>(), narrow.span<float>().begin(),
                           [](double value) { return static_cast<float>(value); });
    return type_ && *type_ != DType::f32 ? converted(narrow.view(), *type_, kOp) : narrow;
  }
  if (!type_ || *type_ == element->dtype) return read;
  return converted(read.view(), *type_, kOp, {.threads = threads_});
}

LinearWeight WeightFiles::rows(const std::string& name, std::int64_t first,
                               std::int64_t count) const {
  if (const auto found = found_.find(name); found != found_.end()) {
    return {.codes = std::make_shared<const QuantizedTensor>(
                read_row_block(reader_, recognized_.dialect, *found->second, first, count))};
  }
  const StoredTensor& tensor = reader_.at(name);
  return {.values = stored_rows(tensor, first, count, collapsed(*shape_in(tensor))[1])};
}

Tensor WeightFiles::row_values(const std::string& name, std::int64_t first,
                               std::int64_t count) const {
  const LinearWeight some = rows(name, first, count);
  if (!some.codes) return some.values;
  return dequantize(*some.codes, type_.value_or(DType::f32), {.threads = threads_});
}

std::int64_t WeightFiles::rows_together(const std::string& name) const {
  const auto found = found_.find(name);
  return found == found_.end() ? 1 : row_block_rows(recognized_.dialect, found->second->weight);
}

Tensor WeightFiles::values(const std::string& name) const {
  const Shape shape = *shape_of(name);
  return reshaped(row_values(name, 0, collapsed(shape)[0]), shape);
}

LinearWeight WeightFiles::weight(const std::string& name) const {
  return rows(name, 0, collapsed(*shape_of(name))[0]);
}

InputQuantization WeightFiles::input_of(const std::string& name) const {
  const auto found = found_.find(name);
  return found == found_.end() ? InputQuantization{} : inputs_.of(*found->second);
}

std::int64_t WeightFiles::nbytes_of(const std::string& name) const {
  if (const auto found = found_.find(name); found != found_.end()) {
    std::int64_t sum = 0;
    for (const DialectTensor& tensor : found->second->tensors)
      if (const StoredTensor* stored = reader_.find(tensor.plan.name); stored != nullptr)
        sum += static_cast<std::int64_t>(stored->nbytes());
    return sum;
  }
  const StoredTensor& tensor = reader_.at(name);
  const auto element = safetensors::element_type(tensor.entry->type);
  if (!type_ || !element || !is_value(element->dtype))
    return static_cast<std::int64_t>(tensor.nbytes());
  // By the bytes: a tensor may have more dimensions than a Shape.
  return static_cast<std::int64_t>(tensor.nbytes()) / element_bytes(element->dtype) *
         element_bytes(*type_);
}

}  // namespace octavo
