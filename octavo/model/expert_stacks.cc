#include <algorithm>
#include <cstring>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/model/expert_stacks_internal.h"
#include "octavo/model/layer_builder_internal.h"
#include "octavo/nn/converted_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "model";

// Where row `row` of the stored matrix goes.
std::int64_t row_place(std::int64_t row, const StackShape& shape) {
  if (!shape.interleaved) return row;
  return row % 2 * (shape.out / 2) + row / 2;
}

// One expert: rows in order, transposed where the stack is stored the other way round.
template <typename T>
void place_expert(const T* from, T* to, const StackShape& shape) {
  if (!shape.in_out) {
    for (std::int64_t row = 0; row < shape.out; ++row)
      std::copy_n(from + row * shape.in, shape.in, to + row_place(row, shape) * shape.in);
    return;
  }
  constexpr std::int64_t kBlock = 32;  // so that both sides stay in the cache
  for (std::int64_t first = 0; first < shape.out; first += kBlock)
    for (std::int64_t k = 0; k < shape.in; ++k)
      for (std::int64_t row = first; row < std::min(first + kBlock, shape.out); ++row)
        to[row_place(row, shape) * shape.in + k] = from[k * shape.out + row];
}

template <typename T>
Tensor placed(const Tensor& stored, const StackShape& shape) {
  Tensor out = Tensor::values({shape.experts, shape.out, shape.in}, stored.dtype());
  const T* from = stored.span<T>().data();
  T* to = out.span<T>().data();
  const std::int64_t each = shape.out * shape.in;
  parallel_for(static_cast<int>(shape.experts), 0,
               [&](int expert) { place_expert(from + expert * each, to + expert * each, shape); });
  return out;
}

Tensor with_shape(const Tensor& tensor, const Shape& shape) {
  View view = tensor.view();
  view.shape = shape;
  view.strides = dense_strides(shape, view.dtype, view.format, view.packed);
  return Tensor::adopt(view, tensor.owner());
}

// Rows of bytes of each expert, those of gate before those of up.
Tensor with_rows_in_order(const Tensor& stored, const StackShape& shape) {
  const View& like = stored.view();
  const Tensor out = is_value(like.dtype) ? Tensor::values(like.shape, like.dtype)
                                          : Tensor::codes(like.shape, like.format, like.packed);
  const std::size_t rows = static_cast<std::size_t>(shape.experts * shape.out),
                    row_bytes = stored.bytes().size() / rows;
  parallel_for(static_cast<int>(shape.experts), 0, [&](int expert) {
    const std::int64_t first = expert * shape.out;
    for (std::int64_t row = 0; row < shape.out; ++row)
      std::memcpy(
          out.bytes().data() + static_cast<std::size_t>(first + row_place(row, shape)) * row_bytes,
          stored.bytes().data() + static_cast<std::size_t>(first + row) * row_bytes, row_bytes);
  });
  return out;
}

// Codes of all experts' rows as a stack.
LinearWeight codes_of_stack(const QuantizedTensor& rows, const std::string& name,
                            const StackShape& shape) {
  const std::int64_t tile = rows.scaling.tile.rows;
  // Rows of their own scales go anywhere.
  check(!shape.in_out && tile > 0 && (shape.interleaved ? tile == 1 : shape.out % tile == 0),
        ErrorCode::unsupported, kOp, "'", shown(name, 200),
        "' is an expert stack quantized in an order that octavo does not multiply; dequantize the "
        "checkpoint, or split its experts (octavo convert)");
  auto out = std::make_shared<QuantizedTensor>(rows);
  out->shape = stored_shape(shape);
  const auto placed = [&](const Tensor& stored) {
    return shape.interleaved ? with_rows_in_order(stored, shape) : stored;
  };
  out->rowwise.codes = with_shape(placed(rows.rowwise.codes), out->shape);
  out->rowwise.scales =
      with_shape(placed(rows.rowwise.scales), scale_shape(out->shape, rows.scaling));
  return {.codes = std::move(out)};
}

}  // namespace

Shape stored_shape(const StackShape& shape) {
  return shape.in_out ? Shape{shape.experts, shape.in, shape.out}
                      : Shape{shape.experts, shape.out, shape.in};
}

LinearWeight load_stack(const WeightFiles& files, const std::string& name,
                        const StackShape& shape) {
  files.check_shape(name, stored_shape(shape));
  const LinearWeight all = files.weight(name);
  if (all.codes) return codes_of_stack(*all.codes, name, shape);
  if (!shape.in_out && !shape.interleaved)
    return {.values = with_shape(all.values, stored_shape(shape))};
  return {.values = all.values.dtype() == DType::f32 ? placed<float>(all.values, shape)
                                                     : placed<std::uint16_t>(all.values, shape)};
}

Tensor load_stack_bias(const WeightFiles& files, const std::string& name, const StackShape& shape) {
  files.check_shape(name, {shape.experts, shape.out});
  const Tensor stored = converted(files.values(name).view(), DType::f32, kOp);
  if (!shape.interleaved) return stored;
  Tensor out = Tensor::values(stored.shape(), DType::f32);
  for (std::int64_t expert = 0; expert < shape.experts; ++expert)
    for (std::int64_t row = 0; row < shape.out; ++row)
      out.span<float>()[static_cast<std::size_t>(expert * shape.out + row_place(row, shape))] =
          stored.span<float>()[static_cast<std::size_t>(expert * shape.out + row)];
  return out;
}

Tensor stack_of(const std::vector<const Tensor*>& matrices) {
  const Shape& one = matrices.front()->shape();
  Tensor out = Tensor::values({static_cast<std::int64_t>(matrices.size()), one[0], one[1]},
                              matrices.front()->dtype());
  auto* to = out.bytes().data();
  for (const Tensor* matrix : matrices) {
    const auto bytes = matrix->bytes();
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return out;
}

Tensor stack_of_biases(const std::vector<FrozenLinear>& each) {
  if (std::ranges::none_of(each, [](const auto& one) { return one.bias.owner() != nullptr; }))
    return {};
  const std::int64_t cols = each.front().out();
  Tensor out = Tensor::values({static_cast<std::int64_t>(each.size()), cols}, DType::f32);
  float* to = out.span<float>().data();
  for (const FrozenLinear& one : each) {
    if (one.bias.owner() == nullptr) {
      std::fill_n(to, cols, 0.0F);
    } else {
      std::ranges::copy(one.bias.span<float>(), to);
    }
    to += cols;
  }
  return out;
}

// gpt-oss alone must have biases here; gate and up alternate in its stacks, which are [in, out] as
// values and [out, in] as the codes that are published. Of other stacks the shapes tell the
// orientation.
std::vector<LayerBuilder::Stack> LayerBuilder::stacks(const std::string& at) const {
  const ExpertsConfig& experts = config_.experts;
  const std::string up = at + "experts.gate_up_proj", down = at + "experts.down_proj";
  const std::int64_t mid = experts.intermediate, hidden = config_.hidden;
  const std::optional<Shape> stored = files_.shape_of(up);
  const bool in_out = (experts.biases && !files_.has(up + "_blocks")) ||
                      (stored == Shape{experts.count, hidden, 2 * mid} &&
                       stored != Shape{experts.count, 2 * mid, hidden});
  return {{.name = up,
           .shape = {.experts = experts.count,
                     .out = 2 * mid,
                     .in = hidden,
                     .in_out = in_out,
                     .interleaved = experts.biases},
           .bias = experts.biases || files_.has(up + "_bias")},
          {.name = down,
           .shape = {.experts = experts.count, .out = hidden, .in = mid, .in_out = in_out},
           .bias = experts.biases || files_.has(down + "_bias")}};
}

void LayerBuilder::check_stack(const Stack& stack, std::int64_t& bytes) const {
  files_.check_shape(stack.name, stored_shape(stack.shape));
  bytes += files_.nbytes_of(stack.name);
  if (!stack.bias) return;
  files_.check_shape(stack.name + "_bias", {stack.shape.experts, stack.shape.out});
  bytes += files_.nbytes_of(stack.name + "_bias");
}

void LayerBuilder::take_stacks(const std::string& at, MixtureOfExperts& out) const {
  const auto take = [&](const Stack& stack, ExpertLinear& linear) {
    linear.stack = load_stack(files_, stack.name, stack.shape);
    linear.input = input_of(stack.name);
    if (stack.bias) linear.bias = load_stack_bias(files_, stack.name + "_bias", stack.shape);
  };
  const std::vector<Stack> both = stacks(at);
  ExpertLinear& first = out.up.emplace_back();
  take(both[0], first);
  take(both[1], out.down);
  for (std::int64_t expert = 0; expert < config_.experts.count; ++expert) {
    const std::string one = text(at, "experts.", expert, ".");
    first.modules.push_back({one + "gate_proj", one + "up_proj"});
    out.down.modules.push_back({one + "down_proj"});
  }
}

void LayerBuilder::take_matrices(const std::string& at, MixtureOfExperts& out) const {
  std::vector<FrozenLinear> ups, downs;
  std::vector<FrozenLinear> gates;
  bool are_values = true;
  for (std::int64_t expert = 0; expert < config_.experts.count; ++expert) {
    const std::vector<Matrix> matrices = expert_matrices(at, expert);
    std::vector<FrozenLinear> up = joined({matrices.begin(), matrices.end() - 1});
    FrozenLinear down = packed(linear(matrices.back()));
    are_values = are_values && up.size() == 1 && !down.weight.codes && !down.packed &&
                 (expert == 0 || (up[0].weight.values.dtype() == ups[0].weight.values.dtype() &&
                                  down.weight.values.dtype() == downs[0].weight.values.dtype()));
    if (up.size() == 2) gates.push_back(std::move(up.front()));
    ups.push_back(std::move(up.back()));
    downs.push_back(std::move(down));
  }
  const auto expert_linear = [&](std::vector<FrozenLinear> each) {
    ExpertLinear one;
    for (const FrozenLinear& linear : each) one.modules.push_back(linear.modules);
    if (!are_values) {
      one.each = std::move(each);
      return one;
    }
    std::vector<const Tensor*> matrices;
    for (const FrozenLinear& linear : each) matrices.push_back(&linear.weight.values);
    one.stack.values = stack_of(matrices);
    one.bias = stack_of_biases(each);
    one.input = each.front().input;
    return one;
  };
  check(gates.empty() || gates.size() == ups.size(), ErrorCode::unsupported, kOp,
        "of the experts of '", shown(at, 200), "' some are quantized and some are not");
  if (!gates.empty()) out.up.push_back(expert_linear(std::move(gates)));
  out.up.push_back(expert_linear(std::move(ups)));
  out.down = expert_linear(std::move(downs));
}

}  // namespace octavo
