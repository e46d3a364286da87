#include "octavo/nn/embedding.h"

#include "octavo/base/error.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/nn/pointwise_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "Embedding";

View row_of(const View& view, std::int64_t row) {
  View out = view;
  out.data = static_cast<std::byte*>(view.data) + row * view.strides[0];
  out.shape = {1, view.shape[1]};
  return out;
}

}  // namespace

void Embedding::forward_into(std::span<const std::int32_t> ids, const View& out,
                             const LinearRun& run) const {
  const Shape& table = weight.shape();
  const auto count = static_cast<std::int64_t>(ids.size());
  if (out.shape != Shape{count, table[1]})
    fail(ErrorCode::invalid_argument, kOp, "the output has shape ", to_string(out.shape),
         "; expected ", to_string(Shape{count, table[1]}));
  for (std::size_t i = 0; i < ids.size(); ++i)
    check(ids[i] >= 0 && ids[i] < table[0], ErrorCode::invalid_argument, kOp, "got id ", ids[i],
          " at position ", i, "; expected 0 to ", table[0] - 1,
          ", the model's vocabulary: are these ids of another tokenizer?");
  if (scale == 1.0) {
    for (std::int64_t i = 0; i < count; ++i)
      convert_into(row_of(weight.view(), ids[static_cast<std::size_t>(i)]), row_of(out, i), kOp,
                   run);
    return;
  }
  const Tensor row = Tensor::values({1, table[1]}, DType::f32);
  for (std::int64_t i = 0; i < count; ++i) {
    convert_into(row_of(weight.view(), ids[static_cast<std::size_t>(i)]), row.view(), kOp, run);
    multiply(row.span<float>(), static_cast<float>(scale));
    convert_into(row.view(), row_of(out, i), kOp, run);
  }
}

}  // namespace octavo
