// Sums of columns on a CPU: whatever the type and the strides, with and without sums that were
// there before. tests/agreement has the kernel of a device, tests/device its callers.
#include <gtest/gtest.h>

#include <vector>

#include "octavo/ops/column_sums_internal.h"
#include "octavo/tensor/tensor.h"

namespace octavo {
namespace {

constexpr std::int64_t kRows = 5, kCols = 3;

// Small integers, of which sums are exact in every type.
template <typename T>
Tensor counted(const Shape& shape, DType dtype) {
  Tensor tensor = Tensor::values(shape, dtype);
  T next = 0;
  for (T& value : tensor.span<T>()) value = next++;
  return tensor;
}

std::vector<double> list_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64)
    return {tensor.span<double>().begin(), tensor.span<double>().end()};
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

TEST(ColumnSumsTest, RowsOfAMatrix) {
  const Tensor values = counted<float>({kRows, kCols}, DType::f32);
  const Tensor before = counted<float>({kCols}, DType::f32);
  for (const DType out : {DType::f32, DType::f64}) {
    const Tensor sums = Tensor::values({kCols}, out);
    column_sums_into(values.view(), sums.view(), {}, "test");
    EXPECT_EQ(list_of(sums), (std::vector<double>{30, 35, 40}));
    column_sums_into(values.view(), sums.view(), {.before = before.view()}, "test");
    EXPECT_EQ(list_of(sums), (std::vector<double>{30, 36, 42}));
  }
}

TEST(ColumnSumsTest, StridesOfAnyKind) {
  const Tensor memory = counted<float>({kCols, kRows}, DType::f32);
  View transposed = memory.view();
  transposed.shape = {kRows, kCols};
  transposed.strides = {memory.view().strides[1], memory.view().strides[0]};
  const Tensor sums = Tensor::values({kCols}, DType::f32);
  column_sums_into(transposed, sums.view(), {}, "test");
  EXPECT_EQ(list_of(sums), (std::vector<double>{10, 35, 60}));
  View none = transposed;
  none.shape = {0, kCols};
  column_sums_into(none, sums.view(), {}, "test");
  EXPECT_EQ(list_of(sums), (std::vector<double>{0, 0, 0}));
}

// Beyond what a float32 can count.
TEST(ColumnSumsTest, DoublesAreSummedAsSuch) {
  const Tensor values = Tensor::values({3, 1}, DType::f64), sums = Tensor::values({1}, DType::f64);
  values.span<double>()[0] = 0x1p30;
  values.span<double>()[1] = 1;
  values.span<double>()[2] = 0x1p-20;
  column_sums_into(values.view(), sums.view(), {}, "test");
  EXPECT_EQ(list_of(sums), (std::vector<double>{0x1p30 + 1 + 0x1p-20}));
}

}  // namespace
}  // namespace octavo
