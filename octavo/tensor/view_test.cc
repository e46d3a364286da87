#include "octavo/tensor/view.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"

namespace octavo {
namespace {

template <typename Call>
ErrorCode code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::internal;
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({7}), 7);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({2, 0, 4}), 0);
  EXPECT_EQ(element_count({INT64_MAX, 1}), INT64_MAX);
}

TEST(Shape, RefusesImpossibleSizes) {
  EXPECT_EQ(code_of([] { (void)element_count({-1}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { (void)element_count({0, -1}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { (void)element_count({INT64_MAX, 2}); }), ErrorCode::invalid_argument);
  // Judged without the zero: such a shape would overflow as soon as anything strides over it.
  EXPECT_EQ(code_of([] { (void)element_count({INT64_MAX, 2, 0}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { (void)element_count({0, INT64_MAX, 2}); }), ErrorCode::invalid_argument);
}

TEST(Shape, PrintsAndCompares) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE((Shape{2, 0}), Shape{2});
}

TEST(Shape, RefusesMoreThanTheLargestRank) {
  const std::vector<std::int64_t> most(kMaxRank, 2), more(kMaxRank + 1, 2);
  EXPECT_EQ(Shape(std::span(most)).rank(), kMaxRank);
  const std::string wanted =
      "[shape] got 9 dimensions; expected at most 8; collapse leading dimensions";
  EXPECT_EQ(code_of([&] { (void)Shape(std::span(more)); }), ErrorCode::invalid_argument);
  EXPECT_EQ(error_testing::message_of([&] { (void)Shape(std::span(more)); }), wanted);
  const std::initializer_list<std::int64_t> nine{1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(error_testing::message_of([&] { (void)Shape(nine); }), wanted);
  float value = 0;
  EXPECT_EQ(error_testing::message_of([&] { (void)value_view(&value, DType::f32, nine); }), wanted);
  std::uint8_t code = 0;
  EXPECT_EQ(error_testing::message_of([&] { (void)code_view(&code, e4m3fn, nine); }), wanted);
}

TEST(DenseBytes, OfValuesAndCodes) {
  EXPECT_EQ(dense_bytes({3, 5}, DType::f64, {}, false), 120);
  EXPECT_EQ(dense_bytes({3, 5}, DType::bf16, {}, false), 30);
  EXPECT_EQ(dense_bytes({3, 5}, DType::code, e4m3fn, false), 15);
  EXPECT_EQ(dense_bytes({3, 5}, DType::code, e2m1fn, false), 15);
  EXPECT_EQ(dense_bytes({3, 5}, DType::code, e2m1fn, true), 9);
  EXPECT_EQ(dense_bytes({3, 5}, DType::code, e3m2fn, true), 12);
  EXPECT_EQ(dense_bytes({}, DType::code, e2m1fn, true), 1);
  EXPECT_EQ(dense_bytes({4, 0}, DType::f32, {}, false), 0);
}

TEST(DenseBytes, RefusesWhatDoesNotFit) {
  EXPECT_EQ(code_of([] { (void)dense_bytes({INT64_MAX / 4}, DType::f64, {}, false); }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] {
              (void)dense_bytes({16, INT64_MAX / 64}, DType::f64, {}, false);
            }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { (void)dense_bytes({4}, DType::code, e4m3fn, true); }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { (void)dense_bytes({4}, DType::f32, {}, true); }),
            ErrorCode::invalid_argument);
}

TEST(DenseStrides, AreRowMajorInBytes) {
  EXPECT_EQ(dense_strides({2, 3, 4}, DType::f32, {}, false), (Shape{48, 16, 4}));
  EXPECT_EQ(dense_strides({2, 3, 4}, DType::code, parse_format("e5m10"), false), (Shape{24, 8, 2}));
  EXPECT_EQ(dense_strides({2, 3, 5}, DType::code, e2m1fn, true), (Shape{9, 3, 0}));
  EXPECT_EQ(dense_strides({}, DType::f32, {}, false), Shape{});
}

TEST(IsDense, IgnoresStridesThatAreNeverTaken) {
  View view = value_view(nullptr, DType::f32, {3, 1, 4});
  EXPECT_TRUE(is_dense(view));
  view.strides[1] = 12345;
  EXPECT_TRUE(is_dense(view));
  view.strides[0] = 20;
  EXPECT_FALSE(is_dense(view));
  View empty = value_view(nullptr, DType::f32, {3, 0});
  empty.strides = {1, 1};
  EXPECT_TRUE(is_dense(empty));
  View transposed = value_view(nullptr, DType::f32, {3, 4});
  transposed.strides = {4, 12};
  EXPECT_FALSE(is_dense(transposed));
  View packed = code_view(nullptr, e2m1fn, {2, 3}, true);
  EXPECT_TRUE(is_dense(packed));
  packed.strides[0] = 3;
  EXPECT_FALSE(is_dense(packed));
}

TEST(Views, OfValues) {
  float data[6];
  const View view = value_view(data, DType::f32, {2, 3});
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.strides, (Shape{12, 4}));
  EXPECT_FALSE(view.packed || view.read_only);
  EXPECT_EQ(view.device, Device{});
  EXPECT_EQ(code_of([&] { (void)value_view(data, DType::code, {2}); }), ErrorCode::wrong_type);
  EXPECT_EQ(code_of([&] { (void)value_view(data, DType::f32, {-2}); }),
            ErrorCode::invalid_argument);
}

TEST(Views, OfCodes) {
  std::uint8_t data[6];
  const View view = code_view(data, e2m1fn, {2, 5}, true);
  EXPECT_EQ(view.dtype, DType::code);
  EXPECT_EQ(view.format, e2m1fn);
  EXPECT_TRUE(view.packed);
  EXPECT_EQ(view.strides[0], 3);
  EXPECT_TRUE(as_read_only(view).read_only);
  EXPECT_EQ(code_of([&] { (void)code_view(data, e4m3fn, {-2}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] {
              (void)code_view(data, e4m3fn, {2, 3}, true);
            }),
            ErrorCode::invalid_argument);
}

TEST(Views, OfSpans) {
  std::vector<float> floats(3);
  const std::vector<double> doubles(4);
  std::vector<std::uint8_t> bytes(5);
  const std::vector<std::uint16_t> words(6);
  EXPECT_EQ(view_of(std::span(floats)).dtype, DType::f32);
  EXPECT_FALSE(view_of(std::span(floats)).read_only);
  EXPECT_EQ(view_of(std::span(doubles)).dtype, DType::f64);
  EXPECT_TRUE(view_of(std::span(doubles)).read_only);
  EXPECT_EQ(view_of(std::span(bytes), e4m3fn).shape, Shape{5});
  EXPECT_FALSE(view_of(std::span(bytes), e4m3fn).read_only);
  EXPECT_EQ(view_of(std::span(words), parse_format("e5m10")).strides, Shape{2});
  EXPECT_TRUE(view_of(std::span(words), parse_format("e5m10")).read_only);
}

// Sixteen-bit storage for eight-bit codes would read every second code from nowhere, and the other
// way round past the end.
TEST(Views, OfSpansRefuseStorageOfAnotherWidth) {
  std::vector<std::uint8_t> bytes(4);
  std::vector<std::uint16_t> words(4);
  EXPECT_EQ(code_of([&] { (void)view_of(std::span(bytes), parse_format("e5m10")); }),
            ErrorCode::wrong_type);
  EXPECT_EQ(code_of([&] { (void)view_of(std::span(words), e4m3fn); }), ErrorCode::wrong_type);
}

}  // namespace
}  // namespace octavo
