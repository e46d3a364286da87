#include <array>

#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/format/named_formats.h"
#include "octavo/report/normal_values_internal.h"
#include "octavo/report/operation/attention_error.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention-report";
constexpr std::array<std::string_view, 4> kNames = {"normal", "outlier", "peaked", "biased"};

template <typename Edit>
Tensor drawn(const Shape& shape, std::uint64_t seed, Edit&& edit) {
  Tensor wide = Tensor::values(shape, DType::f32);
  fill_normal(wide.span<float>(), seed);
  const auto size = static_cast<std::size_t>(shape[3]);
  for (std::size_t i = 0; i < wide.span<float>().size(); ++i)
    wide.span<float>()[i] = edit(wide.span<float>()[i], i % size);
  // bf16 values have the bits of codes of e8m7.
  const Tensor codes = encode(wide.view(), bf16_format);
  return Tensor::adopt(value_view(codes.view().data, DType::bf16, shape), codes.owner());
}

}  // namespace

AttentionSampleInputs sample_attention(AttentionSample sample, std::int64_t heads,
                                       std::int64_t tokens, std::int64_t head_size,
                                       std::uint64_t seed) {
  check(heads > 0 && tokens > 0 && head_size > 0, ErrorCode::invalid_argument, kOp, "got ", heads,
        " heads of ", tokens, " tokens of size ", head_size, "; expected at least 1 of each");
  const Shape shape{1, heads, tokens, head_size};
  const std::size_t step = std::max<std::size_t>(1, static_cast<std::size_t>(head_size) / 4);
  const std::uint64_t first = seed * 3;
  return {.q = drawn(shape, first,
                     [&](float x, std::size_t) {
                       return sample == AttentionSample::peaked ? 3.0F * x : x;
                     }),
          .k = drawn(shape, first + 1,
                     [&](float x, std::size_t d) {
                       if (sample != AttentionSample::outlier || d % step != 0) return x;
                       return d / step % 2 == 0 ? x + 10.0F : x - 10.0F;
                     }),
          .v = drawn(shape, first + 2, [&](float x, std::size_t) {
            return sample == AttentionSample::biased ? x + 0.7F : x;
          })};
}

std::string_view name_of(AttentionSample sample) {
  return kNames[static_cast<std::size_t>(sample)];
}

AttentionSample parse_attention_sample(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<AttentionSample>(i);
  fail(ErrorCode::invalid_argument, kOp, "got inputs '", shown(name),
       "'; expected normal, outlier, peaked or biased");
}

}  // namespace octavo
