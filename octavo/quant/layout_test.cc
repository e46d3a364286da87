#include "octavo/quant/layout.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"

namespace octavo {
namespace {

constexpr std::array kLayouts = {ScaleLayout::row_major, ScaleLayout::swizzled_128x4,
                                 ScaleLayout::transposed};

// Scales that differ from their neighbours and from the padding.
std::uint8_t mark(std::int64_t i) { return static_cast<std::uint8_t>(1 + i % 251); }

Tensor marked_bytes(const Shape& grid) {
  Tensor scales = Tensor::codes(grid, e8m0fnu);
  std::int64_t i = 0;
  for (std::uint8_t& scale : scales.span<std::uint8_t>()) scale = mark(i++);
  return scales;
}

Tensor marked_floats(const Shape& grid) {
  Tensor scales = Tensor::values(grid, DType::f32);
  float next = 1;
  for (float& scale : scales.span<float>()) scale = next++;
  return scales;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.format() == b.format() &&
         std::ranges::equal(a.bytes(), b.bytes());
}

// torch's and torchao's way to say it: every 128 x 4 tile, cut into four groups of 32 rows, the
// groups side by side. Here in the order of memory, each byte asking which scale it is.
std::vector<std::uint8_t> swizzled(const Tensor& scales) {
  const std::int64_t rows = scales.shape()[0], cols = scales.shape()[1];
  std::vector<std::uint8_t> out;
  for (std::int64_t tile_row = 0; tile_row < rows; tile_row += 128)
    for (std::int64_t tile_col = 0; tile_col < cols; tile_col += 4)
      for (std::int64_t line = 0; line < 32; ++line)
        for (std::int64_t group = 0; group < 4; ++group)
          for (std::int64_t col = tile_col; col < tile_col + 4; ++col) {
            const std::int64_t row = tile_row + group * 32 + line;
            const bool inside = row < rows && col < cols;
            out.push_back(
                inside ? scales.span<std::uint8_t>()[static_cast<std::size_t>(row * cols + col)]
                       : std::uint8_t{0});
          }
  return out;
}

TEST(Layout, SwizzleByHand) {
  // 130 x 5 scales are 2 x 2 tiles of 512 bytes.
  const Tensor scales = marked_bytes({130, 5});
  const Tensor out = to_layout(scales, ScaleLayout::swizzled_128x4);
  ASSERT_EQ(out.shape(), (Shape{256, 8}));
  ASSERT_EQ(out.nbytes(), 2048);
  EXPECT_EQ(out.format(), e8m0fnu);
  const struct {
    std::int64_t row, col, offset;
  } by_hand[] = {
      {0, 0, 0},       // the first line: rows 0, 32, 64, 96, four scales of each
      {0, 3, 3},       //
      {32, 0, 4},      //
      {64, 1, 9},      //
      {96, 3, 15},     //
      {1, 0, 16},      // the second line: rows 1, 33, 65, 97
      {31, 2, 498},    // 31 * 16 + 2
      {127, 3, 511},   // the last byte of the tile
      {0, 4, 512},     // the next tile to the right
      {128, 0, 1024},  // the next row of tiles
      {129, 4, 1552},  // 3 * 512 + 16
  };
  for (const auto& [row, col, offset] : by_hand)
    EXPECT_EQ(out.span<std::uint8_t>()[static_cast<std::size_t>(offset)], mark(row * 5 + col))
        << row << ", " << col;
}

TEST(Layout, SwizzleIsThePermutationOthersApply) {
  for (const Shape& grid : {Shape{1, 1}, Shape{127, 3}, Shape{128, 4}, Shape{129, 9},
                            Shape{300, 32}, Shape{32, 1}, Shape{1, 200}}) {
    const Tensor scales = marked_bytes(grid);
    const Tensor out = to_layout(scales, ScaleLayout::swizzled_128x4);
    EXPECT_TRUE(std::ranges::equal(out.span<std::uint8_t>(), swizzled(scales))) << to_string(grid);
  }
}

TEST(Layout, TransposedIsWhatHopperLoads) {
  const Tensor scales = marked_floats({6, 3});
  const Tensor out = to_layout(scales, ScaleLayout::transposed);
  ASSERT_EQ(out.shape(), (Shape{3, 8}));                           // rows of 16-byte multiples
  const std::vector<float> expected = {1, 4, 7, 10, 13, 16, 0, 0,  //
                                       2, 5, 8, 11, 14, 17, 0, 0,  //
                                       3, 6, 9, 12, 15, 18, 0, 0};
  EXPECT_TRUE(std::ranges::equal(out.span<float>(), expected));
  EXPECT_EQ(to_layout(scales, ScaleLayout::transposed, 1).shape(), (Shape{3, 6}));
}

TEST(Layout, TransposedScalesCanBeSeenAsTheGrid) {
  const Tensor scales = marked_floats({5, 3});
  const Tensor seen = as_grid(to_layout(scales, ScaleLayout::transposed, 1), {5, 3});
  EXPECT_EQ(seen.shape(), (Shape{5, 3}));
  EXPECT_EQ(seen.view().strides, (Shape{4, 20}));  // in elements (1, M)
  EXPECT_TRUE(same_bytes(to_layout(seen, ScaleLayout::row_major), scales));
  const Tensor padded = as_grid(to_layout(scales, ScaleLayout::transposed), {5, 3});
  EXPECT_EQ(padded.view().strides, (Shape{4, 32}));
  EXPECT_TRUE(same_bytes(to_layout(padded, ScaleLayout::row_major), scales));
  EXPECT_THROW((void)as_grid(scales, {5, 3}), Error);
}

TEST(Layout, RowMajorMayBePadded) {
  const Tensor out = to_layout(marked_floats({2, 3}), ScaleLayout::row_major, 4);
  const std::vector<float> expected = {1, 2, 3, 0, 4, 5, 6, 0};
  EXPECT_EQ(out.shape(), (Shape{2, 4}));
  EXPECT_TRUE(std::ranges::equal(out.span<float>(), expected));
}

TEST(Layout, NothingIsLostThereAndBack) {
  const Shape grids[] = {{1, 1}, {7},    {130, 5}, {128, 4},  {3, 129, 6}, {2, 2, 5, 3},
                         {0, 4}, {4, 0}, {0},      {2, 0, 3}, {0, 3, 3}};
  for (const Shape& grid : grids) {
    for (const ScaleLayout layout : kLayouts) {
      const Tensor bytes = marked_bytes(grid);
      EXPECT_TRUE(same_bytes(from_layout(to_layout(bytes, layout), layout, grid), bytes))
          << to_string(grid) << static_cast<int>(layout);
      if (layout == ScaleLayout::swizzled_128x4) continue;
      const Tensor floats = marked_floats(grid);
      for (const int pad : {0, 1, 3, 4, 128})
        EXPECT_TRUE(same_bytes(from_layout(to_layout(floats, layout, pad), layout, grid), floats))
            << to_string(grid) << static_cast<int>(layout) << ' ' << pad;
    }
  }
}

TEST(Layout, TwoByteAndEightByteElements) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    const Tensor scales = Tensor::values({5, 3}, dtype);
    std::uint8_t next = 0;
    for (std::byte& byte : scales.bytes()) byte = std::byte{++next};
    const Tensor back =
        from_layout(to_layout(scales, ScaleLayout::transposed), ScaleLayout::transposed, {5, 3});
    EXPECT_TRUE(same_bytes(back, scales));
  }
}

TEST(Layout, AStackIsLaidOutGridByGrid) {
  const Tensor stack = marked_bytes({2, 130, 5});
  const Tensor out = to_layout(stack, ScaleLayout::swizzled_128x4);
  ASSERT_EQ(out.shape(), (Shape{2, 256, 8}));
  View second = stack.view();
  second.data = static_cast<std::uint8_t*>(second.data) + 130 * 5;
  second.shape = {130, 5};
  second.strides = {5, 1};
  const Tensor alone = to_layout(Tensor::adopt(second, stack.owner()), ScaleLayout::swizzled_128x4);
  EXPECT_TRUE(std::ranges::equal(alone.bytes(), out.bytes().subspan(2048)));
}

TEST(Layout, SwizzledScalesMayComeFlat) {
  const Tensor scales = marked_bytes({130, 5});
  View flat = to_layout(scales, ScaleLayout::swizzled_128x4).view();
  const Tensor owner = to_layout(scales, ScaleLayout::swizzled_128x4);
  flat.data = owner.view().data;
  flat.shape = {2048};
  flat.strides = {1};
  EXPECT_TRUE(same_bytes(
      from_layout(Tensor::adopt(flat, owner.owner()), ScaleLayout::swizzled_128x4, {130, 5}),
      scales));
}

template <typename Call>
std::string message_of(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing thrown";
  return "";
}

TEST(Layout, SaysWhatIsWrong) {
  const Tensor floats = marked_floats({4, 4});
  const auto bad = ErrorCode::invalid_argument;
  EXPECT_NE(message_of(ErrorCode::wrong_type,
                       [&] { (void)to_layout(floats, ScaleLayout::swizzled_128x4); })
                .find("got scales of float32; expected one byte each"),
            std::string::npos);
  const Tensor fp4 = Tensor::codes({4, 4}, e2m1fn, true);
  message_of(ErrorCode::wrong_type, [&] { (void)to_layout(fp4, ScaleLayout::transposed); });
  message_of(bad, [&] { (void)to_layout(floats, ScaleLayout::transposed, -1); });
  message_of(bad, [&] { (void)to_layout(marked_bytes({4, 4}), ScaleLayout::swizzled_128x4, 4); });
  message_of(bad, [&] { (void)to_layout(Tensor::values({}, DType::f32), ScaleLayout::row_major); });
  message_of(bad, [&] { (void)layout_shape({-1, 4}, ScaleLayout::transposed); });
  message_of(bad, [&] { (void)layout_shape({1, INT64_MAX}, ScaleLayout::swizzled_128x4); });

  EXPECT_NE(message_of(bad,
                       [&] {
                         (void)from_layout(floats, ScaleLayout::transposed, {5, 4});
                       })
                .find("got scales of shape [4, 4] for a grid of [5, 4]; expected [4, 5] or more"),
            std::string::npos);
  message_of(bad, [&] { (void)from_layout(floats, ScaleLayout::transposed, {4, 3}); });
  message_of(bad, [&] { (void)from_layout(floats, ScaleLayout::row_major, {1, 4, 4}); });
  message_of(bad, [] {
    (void)from_layout(marked_bytes({128, 5}), ScaleLayout::swizzled_128x4, {100, 5});
  });
  View strided = floats.view();
  std::swap(strided.strides[0], strided.strides[1]);
  message_of(bad, [&] {
    (void)from_layout(Tensor::adopt(strided, floats.owner()), ScaleLayout::row_major, {4, 4});
  });
  View null = floats.view();
  null.data = nullptr;
  message_of(bad, [&] { (void)to_layout(Tensor::adopt(null, {}), ScaleLayout::transposed); });
}

}  // namespace
}  // namespace octavo
