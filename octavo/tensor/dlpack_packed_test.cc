// DLPack and codes of fewer than eight bits.
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/tensor/dlpack.h"
#include "octavo/tensor/dlpack_testing_internal.h"

namespace octavo {
namespace {

using namespace dlpack_testing;

TEST(DlpackPacked, PackedFp4InPairs) {
  Versioned pairs(kF4x2, {2, 3}, {4, 1});
  const View view = from_dlpack(&pairs.managed).view();
  EXPECT_TRUE(view.packed);
  EXPECT_EQ(view.shape, (Shape{2, 6}));
  EXPECT_EQ(view.strides[0], 4);
  Versioned one(kF4x2, {});
  EXPECT_EQ(from_dlpack(&one.managed).shape(), Shape{2});
  Versioned strided(kF4x2, {3}, {2});
  EXPECT_EQ(refusal(strided).code(), ErrorCode::invalid_argument);
  Versioned huge(kF4x2, {INT64_MAX});
  EXPECT_EQ(refusal(huge).code(), ErrorCode::invalid_argument);
}

TEST(DlpackPacked, PackedCodesOneByOne) {
  Legacy even(kF4, {2, 6});
  const View view = from_dlpack(&even.managed).view();
  EXPECT_TRUE(view.packed);
  EXPECT_EQ(view.shape, (Shape{2, 6}));
  EXPECT_EQ(view.strides[0], 3);
  // Rows of three FP4 codes: the second one starts in the middle of a byte unless the producer
  // padded.
  Versioned odd(kF4, {2, 3});
  EXPECT_EQ(refusal(odd).code(), ErrorCode::invalid_argument);
  Versioned padded_rows(kF4, {2, 3}, {4, 1});
  EXPECT_EQ(from_dlpack(&padded_rows.managed).view().strides[0], 2);
  Versioned one_row(kF4, {1, 3});
  EXPECT_TRUE(is_dense(from_dlpack(&one_row.managed).view()));
  Versioned six(kF6, {3, 4});
  EXPECT_EQ(from_dlpack(&six.managed).view().strides[0], 3);
  Versioned transposed(kF4, {2, 2}, {1, 2});
  EXPECT_EQ(refusal(transposed).code(), ErrorCode::invalid_argument);
}

TEST(DlpackPacked, PaddedCodes) {
  Versioned padded(kF4, {2, 3}, {1, 2});
  padded.managed.flags = dlpack::kFlagSubBytePadded;
  const View view = from_dlpack(&padded.managed).view();
  EXPECT_FALSE(view.packed);
  EXPECT_EQ(view.strides, (Shape{1, 2}));
}

TEST(DlpackPacked, PackedBytes) {
  Versioned bytes(kU8, {2, 4}, {7, 1});
  for (const std::int64_t cols : {7, 8}) {
    const View view = from_dlpack(&bytes.managed, {.format = e2m1fn, .packed_cols = cols}).view();
    EXPECT_TRUE(view.packed);
    EXPECT_EQ(view.shape, (Shape{2, cols}));
    EXPECT_EQ(view.strides[0], 7);
  }
  EXPECT_EQ(from_dlpack(&bytes.managed, {.format = e2m3fn, .packed_cols = 5}).shape(),
            (Shape{2, 5}));
  Versioned other(kU8, {2, 4});
  for (const std::int64_t cols : {std::int64_t{6}, std::int64_t{9}, std::int64_t{-8}, INT64_MAX}) {
    EXPECT_EQ(refusal(other, {.format = e2m1fn, .packed_cols = cols}).code(),
              ErrorCode::invalid_argument)
        << cols;
  }
  EXPECT_EQ(refusal(other, {.format = e4m3fn, .packed_cols = 4}).code(), ErrorCode::wrong_type);
  EXPECT_EQ(refusal(other, {.packed_cols = 8}).code(), ErrorCode::wrong_type);
  Versioned words(kU16, {4});
  EXPECT_EQ(refusal(words, {.format = e2m1fn, .packed_cols = 16}).code(), ErrorCode::wrong_type);
}

}  // namespace
}  // namespace octavo
