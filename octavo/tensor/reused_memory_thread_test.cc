#include "octavo/tensor/reused_memory_internal.h"

#include <gtest/gtest.h>

#include <thread>

#include "octavo/tensor/tensor.h"

namespace octavo {
namespace {

constexpr std::int64_t kCount = 64 << 10;  // 256 KiB of f32

const void* address_of(const Tensor& tensor) { return tensor.view().data; }
Tensor floats(std::int64_t count) { return Tensor::values({count}, DType::f32); }

TEST(ReusedMemory, GivesWhatWasFreed) {
  const ReusedMemory memory(ReusedMemory::kMostFreeBytes);
  const ReusedMemory::Scope scope(memory);
  Tensor first = floats(kCount);
  const void* const at = address_of(first);
  const Tensor second = floats(kCount);
  EXPECT_NE(at, address_of(second));
  first = {};
  const Tensor third = floats(kCount);
  EXPECT_EQ(at, address_of(third));
}

TEST(ReusedMemory, TakesTheSmallestThatFits) {
  const ReusedMemory memory(ReusedMemory::kMostFreeBytes);
  const ReusedMemory::Scope scope(memory);
  Tensor large = floats(kCount + 64), small = floats(kCount), smaller = floats(kCount - 64);
  const void* const at = address_of(small);
  large = small = smaller = {};
  EXPECT_EQ(at, address_of(floats(kCount)));
  // Much less than a block would waste it.
  Tensor half = floats(kCount / 2);
  half.span<float>()[kCount / 2 - 1] = 1.0F;
  Tensor twice = floats(2 * kCount);
  twice.span<float>()[2 * kCount - 1] = 1.0F;
}

TEST(ReusedMemory, KeepsNoMoreThanItMay) {
  const ReusedMemory memory(kCount * 4);  // one block
  const ReusedMemory::Scope scope(memory);
  Tensor first = floats(kCount), second = floats(kCount);
  const void* const at = address_of(second);
  first = {};
  second = {};  // pushes the first out
  const Tensor third = floats(kCount);
  EXPECT_EQ(at, address_of(third));
}

TEST(ReusedMemory, CountsInItsScopeAlone) {
  const ReusedMemory memory(ReusedMemory::kMostFreeBytes);
  Tensor inside;
  {
    const ReusedMemory::Scope scope(memory);
    inside = floats(kCount);
    const ReusedMemory inner(0);
    const ReusedMemory::Scope nested(inner);
    floats(kCount).span<float>()[0] = 1.0F;  // freed at once
  }
  const void* const at = address_of(inside);
  inside = {};  // back to `memory`
  const Tensor outside = floats(kCount);
  EXPECT_NE(at, address_of(outside));
  const ReusedMemory::Scope scope(memory);
  const Tensor again = floats(kCount);
  EXPECT_EQ(at, address_of(again));
}

TEST(ReusedMemory, TensorsMayOutliveIt) {
  Tensor kept;
  {
    const ReusedMemory memory(ReusedMemory::kMostFreeBytes);
    const ReusedMemory::Scope scope(memory);
    kept = floats(kCount);
  }
  kept.span<float>()[kCount - 1] = 2.0F;
  EXPECT_EQ(2.0F, kept.span<float>()[kCount - 1]);
}

TEST(ReusedMemory, GoesToAnotherThread) {
  const ReusedMemory memory(ReusedMemory::kMostFreeBytes);
  const ReusedMemory::Scope scope(memory);
  Tensor first = floats(kCount);
  const void* const at = address_of(first);
  first = {};
  Tensor there;
  std::thread([&there, shared = ReusedMemory::current()] {
    const ReusedMemory::Scope of_thread(shared);
    there = floats(kCount);
  }).join();
  EXPECT_EQ(at, address_of(there));
  EXPECT_EQ(nullptr, ReusedMemory::take(ReusedMemory::kLeastBytes - 1, nullptr));
}

}  // namespace
}  // namespace octavo
