// Integers and booleans in a comparison.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <span>

#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/pipeline/compare_checkpoints.h"

namespace octavo {
namespace {

using safetensors::StoredType;

template <typename Number>
TestTensor tensor_of(const std::string& name, StoredType type, const std::vector<Number>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {{name, type, {numbers.size()}}, {bytes.begin(), bytes.end()}};
}

class CompareIntegersTest : public CheckpointTest {
 protected:
  [[nodiscard]] CheckpointReport compare(const std::vector<TestTensor>& a,
                                         const std::vector<TestTensor>& b) const {
    write_tensors(path("a.safetensors"), a);
    write_tensors(path("b.safetensors"), b);
    return compare_checkpoints(path("a.safetensors"), path("b.safetensors"));
  }
  // The largest difference of one tensor of each.
  template <typename A, typename B>
  [[nodiscard]] double error(StoredType a_type, const std::vector<A>& a, StoredType b_type,
                             const std::vector<B>& b) const {
    const CheckpointReport report =
        compare({tensor_of("t", a_type, a)}, {tensor_of("t", b_type, b)});
    EXPECT_EQ(report.tensors.size(), 1U);
    EXPECT_EQ(is_equal(report.tensors[0]), report.tensors[0].metrics.max_abs == 0);
    return report.tensors[0].metrics.max_abs;
  }
};

TEST_F(CompareIntegersTest, AreCountedAmongTheTensors) {
  const TestTensor weight = random_tensor("a.weight", {4, 4}, 1);
  const TestTensor ids = tensor_of<std::int64_t>("position_ids", StoredType::i64, {0, 1, 2});
  const TestTensor mask = tensor_of<std::uint8_t>("mask", StoredType::boolean, {0, 1, 1});
  const CheckpointReport same = compare({weight, ids, mask}, {weight, ids, mask});
  EXPECT_EQ(same.tensors.size(), 3U);
  EXPECT_TRUE(same.notes.empty());
  for (const TensorReport& one : same.tensors) EXPECT_TRUE(is_equal(one)) << one.name;
  const CheckpointReport other =
      compare({weight, ids, mask},
              {weight, tensor_of<std::int64_t>("position_ids", StoredType::i64, {0, 1, 3}), mask});
  EXPECT_EQ(other.tensors[other.worst(1)[0]].name, "position_ids");
  EXPECT_EQ(other.tensors[other.worst(1)[0]].metrics.max_abs, 1);
  const CheckpointReport missing = compare({weight, ids}, {weight});
  EXPECT_EQ(missing.not_compared, std::vector<std::string>{"position_ids"});
}

TEST_F(CompareIntegersTest, DifferIfOneDigitDoes) {
  constexpr std::int64_t kBig = (std::int64_t{1} << 62) + 1;  // no float and no double
  EXPECT_EQ(error<std::int64_t>(StoredType::i64, {kBig, -kBig}, StoredType::i64,
                                std::vector<std::int64_t>{kBig, -kBig}),
            0);
  EXPECT_EQ(error<std::int64_t>(StoredType::i64, {kBig}, StoredType::i64,
                                std::vector<std::int64_t>{kBig - 1}),
            1);
  EXPECT_EQ(error<std::int64_t>(StoredType::i64, {-kBig}, StoredType::i64,
                                std::vector<std::int64_t>{-kBig - 3}),
            3);
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(error<std::uint64_t>(StoredType::u64, {kMax, kMax}, StoredType::u64,
                                 std::vector<std::uint64_t>{kMax, kMax - 2}),
            2);
  EXPECT_EQ(error<std::int64_t>(
                StoredType::i64, {std::numeric_limits<std::int64_t>::min()}, StoredType::i64,
                std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max()}),
            0x1p64);
}

TEST_F(CompareIntegersTest, AreComparedByValueWhateverTheirType) {
  const std::vector<std::int64_t> wide{-128, 0, 127};
  EXPECT_EQ(error<std::int8_t>(StoredType::i8, {-128, 0, 127}, StoredType::i64, wide), 0);
  EXPECT_EQ(error<std::int16_t>(StoredType::i16, {-128, 0, 127}, StoredType::i64, wide), 0);
  EXPECT_EQ(error<std::int32_t>(StoredType::i32, {-128, 0, 127}, StoredType::i64, wide), 0);
  EXPECT_EQ(error<std::uint8_t>(StoredType::boolean, {0, 1}, StoredType::u16,
                                std::vector<std::uint16_t>{0, 1}),
            0);
  EXPECT_EQ(error<std::uint32_t>(StoredType::u32, {4'000'000'001U}, StoredType::f32,
                                 std::vector<float>{4e9F}),
            1);
  EXPECT_EQ(error<double>(StoredType::f64, {0x1p53}, StoredType::i64,
                          std::vector<std::int64_t>{(std::int64_t{1} << 53) + 1}),
            1);
}

}  // namespace
}  // namespace octavo
