#include "octavo/tensor/dlpack.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"
#include "octavo/tensor/dlpack_testing_internal.h"

namespace octavo {
namespace {

using namespace dlpack_testing;

TEST(DlpackImport, AdoptsUntilTheLastTensorGoes) {
  Versioned foreign(kF32, {2, 3});
  Legacy legacy(kF32, {2, 3});
  {
    const Tensor first = from_dlpack(&foreign.managed);
    const Tensor old = from_dlpack(&legacy.managed);
    {
      const Tensor second = first;
      EXPECT_EQ(second.view().data, foreign.memory.data());
    }
    EXPECT_EQ(foreign.deleted, 0);
    EXPECT_EQ(old.view().data, legacy.memory.data());
  }
  EXPECT_EQ(foreign.deleted, 1);
  EXPECT_EQ(legacy.deleted, 1);
}

TEST(DlpackImport, AnArrayMayHaveNoDeleter) {
  Versioned foreign(kF32, {4});
  foreign.managed.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).shape(), Shape{4});
}

TEST(DlpackImport, KnowsEveryType) {
  const struct {
    DLDataType type;
    DType dtype;
    Format format;
  } known[] = {{{dlpack::kDLFloat, 64, 1}, DType::f64, {}},
               {kF32, DType::f32, {}},
               {{dlpack::kDLFloat, 16, 1}, DType::f16, {}},
               {{dlpack::kDLBfloat, 16, 1}, DType::bf16, {}},
               {{7, 8, 1}, DType::code, e3m4},
               {{8, 8, 1}, DType::code, e4m3},
               {{9, 8, 1}, DType::code, e4m3b11fnuz},
               {{10, 8, 1}, DType::code, e4m3fn},
               {{11, 8, 1}, DType::code, e4m3fnuz},
               {{12, 8, 1}, DType::code, e5m2},
               {{13, 8, 1}, DType::code, e5m2fnuz},
               {{14, 8, 1}, DType::code, e8m0fnu},
               {{15, 6, 1}, DType::code, e2m3fn},
               {{16, 6, 1}, DType::code, e3m2fn},
               {{17, 4, 1}, DType::code, e2m1fn}};
  for (const auto& [type, dtype, format] : known) {
    Versioned foreign(type, {4});
    foreign.managed.flags = dlpack::kFlagSubBytePadded;
    const Tensor tensor = from_dlpack(&foreign.managed);
    EXPECT_EQ(tensor.dtype(), dtype) << int{type.code};
    EXPECT_EQ(tensor.format(), format) << int{type.code};
    EXPECT_FALSE(tensor.view().packed);
  }
}

TEST(DlpackImport, RefusesTypesItDoesNotKnow) {
  const DLDataType strangers[] = {{dlpack::kDLFloat, 8, 1},
                                  {dlpack::kDLFloat, 32, 4},
                                  {dlpack::kDLFloat, 128, 1},
                                  {dlpack::kDLBfloat, 32, 1},
                                  {dlpack::kDLInt, 32, 1},
                                  {dlpack::kDLUInt, 64, 1},
                                  {dlpack::kDLComplex, 64, 1},
                                  {dlpack::kDLBool, 8, 1},
                                  {10, 8, 2},
                                  {10, 7, 1},
                                  {15, 8, 1},
                                  {17, 8, 1},
                                  {17, 4, 3},
                                  {17, 4, 0},
                                  {18, 8, 1},
                                  {255, 8, 1}};
  for (const DLDataType& type : strangers) {
    Versioned foreign(type, {4});
    EXPECT_EQ(refusal(foreign).code(), ErrorCode::wrong_type)
        << int{type.code} << ' ' << int{type.bits};
  }
}

TEST(DlpackImport, IntegersNeedAFormat) {
  for (const DLDataType type : {kU8, DLDataType{dlpack::kDLInt, 8, 1}}) {
    Versioned bytes(type, {5});
    EXPECT_EQ(refusal(bytes).code(), ErrorCode::wrong_type);
    EXPECT_EQ(refusal(bytes, {.format = parse_format("e5m10")}).code(),
              ErrorCode::wrong_type);                                             // needs two bytes
    EXPECT_EQ(from_dlpack(&bytes.managed, {.format = e2m1fn}).format(), e2m1fn);  // one code a byte
  }
  Versioned words(kU16, {5});
  EXPECT_EQ(refusal(words, {.format = e4m3fn}).code(), ErrorCode::wrong_type);
  EXPECT_EQ(from_dlpack(&words.managed, {.format = parse_format("e5m10")}).view().strides,
            Shape{2});
}

TEST(DlpackImport, AFormatMayBeRepeatedButNotContradicted) {
  Versioned foreign({dlpack::kDLFloat8_e5m2, 8, 1}, {5});
  EXPECT_EQ(refusal(foreign, {.format = e4m3fn}).code(), ErrorCode::wrong_type);
  EXPECT_EQ(refusal(foreign, {.packed_cols = 5}).code(), ErrorCode::wrong_type);
  EXPECT_EQ(from_dlpack(&foreign.managed, {.format = e5m2}).format(), e5m2);
  Versioned values(kF32, {5});
  EXPECT_EQ(refusal(values, {.format = e4m3fn}).code(), ErrorCode::wrong_type);
}

TEST(DlpackImport, StridesBecomeBytes) {
  Versioned transposed(kF32, {2, 3}, {1, 2});
  EXPECT_EQ(from_dlpack(&transposed.managed).view().strides, (Shape{4, 8}));
  Versioned backwards(kF32, {2, 3}, {-3, -1});
  EXPECT_EQ(from_dlpack(&backwards.managed).view().strides, (Shape{-12, -4}));
  Versioned broadcast(kF32, {2, 3}, {0, 1});
  EXPECT_EQ(from_dlpack(&broadcast.managed).view().strides, (Shape{0, 4}));
  Versioned dense(kF32, {2, 3});
  EXPECT_EQ(from_dlpack(&dense.managed).view().strides, (Shape{12, 4}));
  Versioned words(kU16, {2, 3}, {8, 2});
  EXPECT_EQ(from_dlpack(&words.managed, {.format = parse_format("e5m10")}).view().strides,
            (Shape{16, 4}));
}

TEST(DlpackImport, StridesThatDoNotMatterAreIgnored) {
  Versioned single(kF32, {1, 3}, {INT64_MAX, 1});
  EXPECT_TRUE(is_dense(from_dlpack(&single.managed).view()));
  Versioned empty(kF32, {0, 3}, {INT64_MAX, INT64_MIN});
  EXPECT_TRUE(is_dense(from_dlpack(&empty.managed).view()));
}

TEST(DlpackImport, RefusesStridesBeyond64Bits) {
  for (const std::int64_t stride : {INT64_MAX, INT64_MIN, INT64_MAX / 16, INT64_MIN / 64}) {
    Versioned far(kF32, {3, 3}, {stride, 1});
    EXPECT_EQ(refusal(far).code(), ErrorCode::invalid_argument) << stride;
  }
  Versioned sum(kF32, {2, 2}, {INT64_MAX / 40, INT64_MAX / 40});
  EXPECT_EQ(refusal(sum).code(), ErrorCode::invalid_argument);
}

TEST(DlpackImport, ByteOffsetMovesTheData) {
  Versioned foreign(kF32, {2});
  foreign.array().byte_offset = 12;
  EXPECT_EQ(from_dlpack(&foreign.managed).view().data, foreign.memory.data() + 12);
  Versioned lost(kF32, {2});
  lost.array().byte_offset = UINT64_MAX;
  EXPECT_EQ(refusal(lost).code(), ErrorCode::invalid_argument);
}

TEST(DlpackImport, ShapesOfEveryRank) {
  Versioned scalar(kF32, {});
  scalar.array().shape = nullptr;
  EXPECT_EQ(from_dlpack(&scalar.managed).shape(), Shape{});
  Versioned most(kF32, std::vector<std::int64_t>(kMaxRank, 1));
  EXPECT_EQ(from_dlpack(&most.managed).shape().rank(), kMaxRank);
  Versioned more(kF32, std::vector<std::int64_t>(kMaxRank + 1, 1));
  EXPECT_EQ(refusal(more).code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(refusal(more).what(),
               "[from_dlpack] got 9 dimensions; expected at most 8; collapse leading dimensions");
  Versioned negative_rank(kF32, {1});
  negative_rank.array().ndim = -1;
  EXPECT_EQ(refusal(negative_rank).code(), ErrorCode::invalid_argument);
  Versioned shapeless(kF32, {1});
  shapeless.array().shape = nullptr;
  EXPECT_EQ(refusal(shapeless).code(), ErrorCode::invalid_argument);
  Versioned negative(kF32, {2, -1});
  EXPECT_EQ(refusal(negative).code(), ErrorCode::invalid_argument);
  Versioned huge(kF32, {INT64_MAX, INT64_MAX});
  EXPECT_EQ(refusal(huge).code(), ErrorCode::invalid_argument);
}

TEST(DlpackImport, NullDataIsForEmptyArrays) {
  Versioned empty(kF32, {0, 4});
  empty.array().data = nullptr;
  EXPECT_EQ(element_count(from_dlpack(&empty.managed).shape()), 0);
  Versioned missing(kF32, {1, 4});
  missing.array().data = nullptr;
  EXPECT_EQ(refusal(missing).code(), ErrorCode::invalid_argument);
  EXPECT_THROW((void)from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)), Error);
  EXPECT_THROW((void)from_dlpack(static_cast<DLManagedTensor*>(nullptr)), Error);
}

TEST(DlpackImport, Devices) {
  Versioned foreign(kF32, {2});
  for (const int host : {1, 3, 11}) {
    foreign.array().device = {host, 0};
    EXPECT_EQ(from_dlpack(&foreign.managed).view().device, Device{}) << host;
  }
  for (const int cuda : {2, 13}) {
    foreign.array().device = {cuda, 3};
    EXPECT_EQ(from_dlpack(&foreign.managed).view().device, (Device{DeviceKind::cuda, 3})) << cuda;
  }
  Versioned stranger(kF32, {2});
  for (const int other : {0, 4, 7, 8, 9, 10, 12, 14, 15, 99, -1}) {
    stranger.array().device = {other, 0};
    EXPECT_EQ(refusal(stranger).code(), ErrorCode::unsupported) << other;
  }
}

TEST(DlpackImport, VersionsAndFlags) {
  Versioned later(kF32, {2});
  later.managed.version = {1, 7};
  later.managed.flags = dlpack::kFlagReadOnly | dlpack::kFlagCopied;
  EXPECT_TRUE(from_dlpack(&later.managed).view().read_only);
  Versioned writable(kF32, {2});
  EXPECT_FALSE(from_dlpack(&writable.managed).view().read_only);
  for (const std::uint32_t major : {0u, 2u}) {
    Versioned stranger(kF32, {2});
    stranger.managed.version = {major, 0};
    EXPECT_EQ(refusal(stranger).code(), ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace octavo
