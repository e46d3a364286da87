// The table of shapes for cuBLASLt, and the products that are never offered to it. No device is
// needed.
#include "octavo/backend/cuda/gemm/cublaslt_table.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_cublaslt.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr GemmChoice kSome[] = {
    {.kind = GemmKind::bf16, .m = {64, 1024}, .n = {256, 512}, .k = {.from = 128}, .library = true},
    {.kind = GemmKind::bf16, .m = {.from = 4096}, .library = true},
    {.kind = GemmKind::bf16, .m = {.from = 2048}, .library = false},
    {.kind = GemmKind::fp8_row, .k = {0, 4096}, .library = true},
};
constexpr bool chosen(GemmKind kind, std::int64_t m, std::int64_t n, std::int64_t k) {
  return prefers_cublaslt(kSome, kind, m, n, k);
}

TEST(CublasLtTable, FirstMatchingRowDecides) {
  // Ranges are half-open: [from, below).
  EXPECT_TRUE(chosen(GemmKind::bf16, 64, 256, 128));
  EXPECT_TRUE(chosen(GemmKind::bf16, 1023, 511, 1 << 30));
  EXPECT_FALSE(chosen(GemmKind::bf16, 63, 256, 128));
  EXPECT_FALSE(chosen(GemmKind::bf16, 1024, 256, 128));
  EXPECT_FALSE(chosen(GemmKind::bf16, 64, 255, 128));
  EXPECT_FALSE(chosen(GemmKind::bf16, 64, 512, 128));
  EXPECT_FALSE(chosen(GemmKind::bf16, 64, 256, 127));
  // The first matching row decides; the next one has what is left.
  EXPECT_TRUE(chosen(GemmKind::bf16, 4096, 1, 1));
  EXPECT_FALSE(chosen(GemmKind::bf16, 4095, 1, 1));
  // Other kinds have rows of their own, or none.
  EXPECT_FALSE(chosen(GemmKind::f16, 64, 256, 128));
  EXPECT_TRUE(chosen(GemmKind::fp8_row, 1, 1, 4095));
  EXPECT_FALSE(chosen(GemmKind::fp8_row, 1, 1, 4096));
  EXPECT_FALSE(chosen(GemmKind::fp8_tensor, 1, 1, 1));
}

TEST(CublasLtTable, OverlappingRowsAreDetected) {
  EXPECT_TRUE(overlap(kSome[1], kSome[2]));
  EXPECT_FALSE(overlap(kSome[0], kSome[1]));
  EXPECT_FALSE(overlap(kSome[0], kSome[3]));  // another kind
  GemmChoice beside = kSome[0];
  beside.m = {1024, 2048};  // begins where the other ends
  EXPECT_FALSE(overlap(kSome[0], beside));
}

// Rows as the bench prints them: none is empty, none overlaps another, and all of them say library,
// since shapes without a row are for octavo's kernels.
TEST(CublasLtTable, TheTableIsWellFormed) {
  for (const GemmChoice& row : kGemmChoices) {
    EXPECT_TRUE(row.library);
    for (const GemmRange& range : {row.m, row.n, row.k}) {
      EXPECT_GE(range.from, 0);
      EXPECT_LT(range.from, range.below);
    }
    for (const GemmChoice& other : kGemmChoices)
      if (&row != &other) {
        EXPECT_FALSE(overlap(row, other)) << &row - kGemmChoices << ", " << &other - kGemmChoices;
      }
  }
}

// A bf16 product that cuBLASLt could do, at addresses that are never read.
Matrix matrix(std::uintptr_t address, DType dtype, std::int64_t rows, std::int64_t cols) {
  const std::int64_t each = dtype == DType::code ? 1 : dtype == DType::f32 ? 4 : 2;
  return {.data = reinterpret_cast<void*>(address),
          .dtype = dtype,
          .format = e4m3fn,
          .rows = rows,
          .cols = cols,
          .row_pitch = cols * each,
          .col_stride = each};
}
GemmJob product(DType dtype) {
  GemmJob job{.accumulator = Accumulator::native};
  job.a.values = matrix(0x1000, dtype, 96, 64);
  job.b.values = matrix(0x2000, dtype, 80, 64);
  job.out = matrix(0x3000, DType::bf16, 96, 80);
  return job;
}
GemmJob product_of_codes(std::int64_t tile_rows) {
  GemmJob job = product(DType::bf16);
  for (GemmOperand* operand : {&job.a, &job.b}) {
    QuantizedMatrix& q = operand->quantized;
    q.codes = matrix(reinterpret_cast<std::uintptr_t>(operand->values.data), DType::code,
                     operand->values.rows, 64);
    operand->values = {};
    q.tile = {tile_rows, 0};
    q.scales = matrix(0x4000, DType::f32, tile_count(tile_rows, q.codes.rows), 1);
  }
  return job;
}

TEST(CublasLtKind, OfWhatItMightDo) {
  EXPECT_EQ(cublaslt_kind(product(DType::bf16)), GemmKind::bf16);
  EXPECT_EQ(cublaslt_kind(product(DType::f16)), GemmKind::f16);
  EXPECT_EQ(cublaslt_kind(product_of_codes(0)), GemmKind::fp8_tensor);
  EXPECT_EQ(cublaslt_kind(product_of_codes(1)), GemmKind::fp8_row);
  GemmJob job = product_of_codes(1);
  job.b.quantized.codes.format = e5m2;
  EXPECT_EQ(cublaslt_kind(job), GemmKind::fp8_row);
  job = product(DType::bf16);
  job.out = matrix(0x3000, DType::f32, 96, 80);
  EXPECT_EQ(cublaslt_kind(job), GemmKind::bf16);
}

TEST(CublasLtKind, NoneWhereItCannotBe) {
  const auto declined = [](const char* what, const GemmJob& base, auto&& change) {
    GemmJob job = base;
    change(job);
    EXPECT_EQ(cublaslt_kind(job), std::nullopt) << what;
  };
  const GemmJob bf16 = product(DType::bf16), tensor = product_of_codes(0),
                row = product_of_codes(1);
  declined("groups", bf16, [](GemmJob& job) { job.group_count = 1; });
  declined("bias", bf16, [](GemmJob& job) { job.bias = job.out; });
  declined("residual", bf16, [](GemmJob& job) { job.residual = job.out; });
  declined("activation", bf16, [](GemmJob& job) { job.activation = ProducerKind::relu; });
  declined("no rows", bf16, [](GemmJob& job) { job.a.values.rows = 0; });
  declined("no columns", bf16, [](GemmJob& job) { job.b.values.rows = 0; });
  declined("no depth", bf16, [](GemmJob& job) { job.a.values.cols = job.b.values.cols = 0; });
  const auto with_rows = [&](std::int64_t rows) {
    GemmJob job = bf16;
    job.a.values.rows = job.out.rows = rows;
    return job;
  };
  // 80 columns of the result: 2^31 elements are one too many.
  EXPECT_EQ(cublaslt_kind(with_rows(((std::int64_t{1} << 31) - 1) / 80)), GemmKind::bf16);
  declined("too many elements", with_rows(((std::int64_t{1} << 31) - 1) / 80 + 1), [](GemmJob&) {});
  declined("two types", bf16, [](GemmJob& job) { job.b.values.dtype = DType::f16; });
  declined("f32", product(DType::f32), [](GemmJob&) {});
  declined("f64 result", bf16, [](GemmJob& job) { job.out.dtype = DType::f64; });
  declined("address", bf16,
           [](GemmJob& job) { job.a.values.data = reinterpret_cast<void*>(0x1008); });
  declined("pitch", bf16, [](GemmJob& job) { job.out.row_pitch += 2; });
  declined("one row again and again", bf16, [](GemmJob& job) { job.a.values.row_pitch = 0; });
  declined("strided", bf16, [](GemmJob& job) { job.b.values.col_stride = 4; });
  declined("e5m2 by e5m2", tensor, [](GemmJob& job) {
    job.a.quantized.codes.format = job.b.quantized.codes.format = e5m2;
  });
  declined("other codes", tensor, [](GemmJob& job) { job.a.quantized.codes.format = e4m3fnuz; });
  declined("scales along K", tensor, [](GemmJob& job) { job.a.quantized.tile = {1, 32}; });
  declined("a row by a tensor", row, [](GemmJob& job) { job.b.quantized.tile = {}; });
  declined("scales apart", row, [](GemmJob& job) { job.b.quantized.scales.row_pitch = 8; });
  declined("scales of e8m0", tensor,
           [](GemmJob& job) { job.a.quantized.scales.dtype = DType::code; });
  static float of_tensor = 1.0F;
  declined("two levels", tensor, [](GemmJob& job) { job.a.quantized.tensor_scale = &of_tensor; });
}

}  // namespace
}  // namespace octavo::cuda
