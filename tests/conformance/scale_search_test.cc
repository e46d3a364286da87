// The policies that look at more than the amax, on every backend, beside scales and codes that
// numpy made from the documentation (scale_search.tsv).
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/octavo.h"
#include "tests/conformance/golden.h"
#include "tests/support/every_backend.h"

namespace octavo {
namespace {

constexpr int kLeastRows = 348;  // a table that was cut short does not pass

std::string hex_of(const Tensor& tensor, std::size_t bytes) {
  std::string out;
  const auto all = tensor.bytes();
  for (std::size_t i = 0; i < all.size(); i += bytes)
    for (std::size_t b = bytes; b-- > 0;)
      for (const int shift : {4, 0})
        out += "0123456789abcdef"[std::to_integer<unsigned>(all[i + b]) >> shift & 15u];
  return out;
}

Tensor values_of(const std::string& digits, const Shape& shape, DType dtype) {
  Tensor out = Tensor::values(shape, dtype);
  const std::size_t bytes = dtype == DType::bf16 ? 2 : 4;
  std::byte* to = out.bytes().data();
  for (std::size_t i = 0; i < digits.size(); i += 2 * bytes, to += bytes) {
    const auto bits =
        golden::number<std::uint32_t>(std::string_view(digits).substr(i, 2 * bytes), 16);
    std::memcpy(to, &bits, bytes);  // little endian
  }
  return out;
}

TEST(ScaleSearch, GivesTheScalesAndCodesOfNumpy) {
  int rows = 0;
  for (const golden::Line& line :
       golden::read_lines(OCTAVO_SOURCE_DIR "/tests/conformance/scale_search.tsv")) {
    const std::vector<std::string>& c = line.columns;
    ASSERT_EQ(c.size(), 12u) << line.number;
    ++rows;
    Scaling scaling = preset(c[1]);
    parse_amax_policy(c[2], scaling);
    scaling.scale.rule = parse_scale_rule(c[3]);
    scaling.packed = false;
    const Tensor values = values_of(
        c[7], {golden::number<std::int64_t>(c[5], 10), golden::number<std::int64_t>(c[6], 10)},
        c[4] == "bf16" ? DType::bf16 : DType::f32);
    const bool is_weighted = c[11] != "-";
    const Tensor weights =
        is_weighted ? values_of(c[11], {values.shape()[1]}, DType::f32) : Tensor();
    const bool f32_scales = scaling.scale.format == ScaleFormat::f32;
    for (const BackendInfo& backend : support::every_backend()) {
      const QuantizedTensor got =
          quantize(values.view(), scaling,
                   {.column_weights = is_weighted ? weights.span<float>() : std::span<float>(),
                    .backend = backend.kernels});
      const std::string where =
          text(backend.name, ", line ", line.number, ": ", c[0], " ", c[1], " ", c[2], " ", c[3]);
      EXPECT_EQ(hex_of(got.rowwise.scales, f32_scales ? 4 : 1), c[8]) << where;
      EXPECT_EQ(hex_of(got.rowwise.codes, 1), c[10]) << where;
      if (c[9] != "-") {
        EXPECT_EQ(hex_of(got.rowwise.tensor_scale, 4), c[9]) << where;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GE(rows, kLeastRows);
}

}  // namespace
}  // namespace octavo
