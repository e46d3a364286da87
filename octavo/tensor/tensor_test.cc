#include "octavo/tensor/tensor.h"

#include <array>
#include <cstdint>
#include <memory>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

std::uintptr_t address(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.view().data);
}

TEST(Tensor, ValuesAreDenseAndWritable) {
  const Tensor tensor = Tensor::values({3, 4}, DType::f32);
  EXPECT_EQ(tensor.dtype(), DType::f32);
  EXPECT_EQ(tensor.shape(), (Shape{3, 4}));
  EXPECT_TRUE(is_dense(tensor.view()));
  EXPECT_EQ(tensor.nbytes(), 48);
  EXPECT_EQ(address(tensor) % 64, 0u);
  for (float& value : tensor.span<float>()) value = 1;
  EXPECT_EQ(tensor.bytes().size(), 48u);
}

TEST(Tensor, CodesMayBePacked) {
  const Tensor loose = Tensor::codes({3, 5}, e2m1fn);
  const Tensor packed = Tensor::codes({3, 5}, e2m1fn, true);
  EXPECT_EQ(loose.nbytes(), 15);
  EXPECT_EQ(packed.nbytes(), 9);
  EXPECT_EQ(packed.format(), e2m1fn);
  EXPECT_EQ(packed.bytes().size(), 9u);
  EXPECT_EQ(loose.span<std::uint8_t>().size(), 15u);
  EXPECT_THROW((void)packed.span<std::uint8_t>(), Error);
  EXPECT_THROW((void)Tensor::codes({3, 5}, e4m3fn, true), Error);
}

TEST(Tensor, LargeOnesAreAlignedToHugePages) {
  const Tensor tensor = Tensor::codes({(2 << 20) + 1}, e4m3fn);
  EXPECT_EQ(address(tensor) % (2u << 20), 0u);
  tensor.bytes().back() = std::byte{1};
}

TEST(Tensor, EmptyOnesHaveMemoryToPointAt) {
  const Tensor tensor = Tensor::values({0, 4}, DType::f32);
  EXPECT_NE(tensor.view().data, nullptr);
  EXPECT_EQ(tensor.nbytes(), 0);
  EXPECT_TRUE(tensor.span<float>().empty());
}

TEST(Tensor, CopiesShareMemory) {
  const Tensor tensor = Tensor::values({2}, DType::f64);
  const Tensor copy = tensor;
  copy.span<double>()[1] = 42;
  EXPECT_EQ(tensor.span<double>()[1], 42);
}

TEST(Tensor, AdoptsWhatAnOwnerKeepsAlive) {
  auto memory = std::make_shared<std::array<float, 4>>();
  const std::weak_ptr<void> watch = memory;
  {
    const Tensor tensor = Tensor::adopt(value_view(memory->data(), DType::f32, {4}), memory);
    memory.reset();
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(tensor.span<float>().size(), 4u);
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, SpansHaveTheElementsSize) {
  const Tensor tensor = Tensor::values({4}, DType::bf16);
  EXPECT_EQ(tensor.span<std::uint16_t>().size(), 4u);
  EXPECT_THROW((void)tensor.span<float>(), Error);
  EXPECT_EQ(Tensor::codes({4}, parse_format("e5m10")).span<std::uint16_t>().size(), 4u);
}

TEST(Tensor, SpansNeedDenseMemory) {
  const Tensor whole = Tensor::values({4, 4}, DType::f32);
  View view = whole.view();
  view.shape = {4, 2};
  const Tensor part = Tensor::adopt(view, whole.owner());
  EXPECT_THROW((void)part.span<float>(), Error);
  EXPECT_THROW((void)part.bytes(), Error);
}

TEST(Tensor, RefusesWhatCannotBe) {
  EXPECT_THROW((void)Tensor::values({-1}, DType::f32), Error);
  EXPECT_THROW((void)Tensor::values({4}, DType::code), Error);
  EXPECT_THROW((void)Tensor::values({INT64_MAX / 2, 4}, DType::f32), Error);
}

// Possible as a shape, but no machine has it: an error to catch, not the end of the process.
TEST(Tensor, OutOfMemoryIsAnError) {
  if (support::under_sanitizer())
    GTEST_SKIP() << "sanitizers end the process on allocations this large";
  try {
    (void)Tensor::values({1 << 20, std::int64_t{1} << 38}, DType::f32);
    FAIL() << "2^60 bytes were allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
  }
  EXPECT_THROW((void)Tensor::values({INT64_MAX / 8}, DType::f64), Error);
}

}  // namespace
}  // namespace octavo
