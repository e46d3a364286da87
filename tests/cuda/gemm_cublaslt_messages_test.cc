// The cublasLtMatmul call of a product, received by a fake that computes it on the CPU
// (fake_cublaslt.cc): which operand is which, sizes, pitches, scales, and when the heuristic is
// queried. No device is needed. Products of small integers are exact.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend/cuda/gemm/gemm_cublaslt.h"
#include "octavo/base/error.h"
#include "octavo/base/log.h"
#include "octavo/format/named_formats.h"
#include "tests/cuda/fake_cublaslt.h"

namespace octavo::testing {
namespace {

class GemmCublasLtMessages : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuda::gemm_cublaslt_problem(), "");
    void* library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    fake_ = static_cast<FakeCublasLt*>(dlsym(library, "fake_cublaslt"));
    ASSERT_NE(fake_, nullptr) << "the library that was found is not the stand-in";
    *fake_ = {};
  }
  // One handle per device.
  [[nodiscard]] Exec logged(int device = 0) {
    return {.device = {DeviceKind::cuda, device}, .log = &log_};
  }
  FakeCublasLt* fake_ = nullptr;
  std::vector<std::string> notes_{};
  Log log_{[this](std::string_view note) { notes_.emplace_back(note); }};
};

// Memory at a multiple of 256 bytes, or `beside` bytes after one.
struct Memory {
  explicit Memory(std::size_t size, std::size_t beside = 0) : bytes(size + 512), at(beside) {}
  [[nodiscard]] unsigned char* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (256 - address % 256) + at;
  }
  std::vector<unsigned char> bytes;
  std::size_t at;
};

int value_at(std::int64_t row, std::int64_t col, int seed) {
  return static_cast<int>((row * 7 + col * 3 + row * col + seed) % 9) - 4;
}

// Integers from -4 to 4 as bf16 or FP8.
struct Operand {
  Operand(std::int64_t rows, std::int64_t cols, const Format* format, int of_seed,
          std::int64_t pitch, std::size_t beside = 0)
      : memory(static_cast<std::size_t>(rows * pitch), beside), seed(of_seed) {
    const int each = format != nullptr ? 1 : 2;
    Matrix made{.data = memory.data(),
                .dtype = format != nullptr ? DType::code : DType::bf16,
                .format = format != nullptr ? *format : Format{},
                .rows = rows,
                .cols = cols,
                .row_pitch = pitch,
                .col_stride = each};
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < cols; ++col) {
        const int value = value_at(row, col, seed);
        unsigned char* to = memory.data() + row * pitch + col * each;
        if (format == nullptr) {
          const auto wide = static_cast<float>(value);
          std::uint32_t bits = 0;
          std::memcpy(&bits, &wide, 4);
          const auto half = static_cast<std::uint16_t>(bits >> 16);
          std::memcpy(to, &half, 2);
        } else {
          // 1, 2, 3 and 4 in both formats.
          constexpr unsigned char kE4m3[] = {0x00, 0x38, 0x40, 0x44, 0x48},
                                  kE5m2[] = {0x00, 0x3C, 0x40, 0x42, 0x44};
          const unsigned char code =
              (*format == e4m3fn ? kE4m3 : kE5m2)[value < 0 ? -value : value];
          *to = static_cast<unsigned char>(code | (value < 0 ? 0x80 : 0));
        }
      }
    (format != nullptr ? operand.quantized.codes : operand.values) = made;
  }
  void scale_by(std::vector<float>& scales, std::int64_t tile_rows) {
    operand.quantized.tile = {tile_rows, 0};
    operand.quantized.scales = {.data = scales.data(),
                                .dtype = DType::f32,
                                .rows = tile_count(tile_rows, operand.rows()),
                                .cols = 1,
                                .row_pitch = sizeof(float),
                                .col_stride = sizeof(float)};
  }
  Memory memory;
  int seed;
  GemmOperand operand{};
};

struct Result {
  Result(std::int64_t rows, std::int64_t cols, std::int64_t pitch)
      : memory(static_cast<std::size_t>(rows * pitch)) {
    matrix = {.data = memory.data(),
              .dtype = DType::f32,
              .rows = rows,
              .cols = cols,
              .row_pitch = pitch,
              .col_stride = 4};
  }
  [[nodiscard]] float at(std::int64_t row, std::int64_t col) {
    float value = 0;
    std::memcpy(&value, memory.data() + row * matrix.row_pitch + col * 4, 4);
    return value;
  }
  Memory memory;
  Matrix matrix{};
};

template <typename Scale>
void expect_product(Result& out, const Operand& a, const Operand& b, Scale&& scale) {
  for (std::int64_t row = 0; row < out.matrix.rows; ++row)
    for (std::int64_t col = 0; col < out.matrix.cols; ++col) {
      int sum = 0;
      for (std::int64_t k = 0; k < a.operand.cols(); ++k)
        sum += value_at(row, k, a.seed) * value_at(col, k, b.seed);
      ASSERT_EQ(out.at(row, col), static_cast<float>(sum) * scale(row, col)) << row << ", " << col;
    }
}

GemmJob job_of(const Operand& a, const Operand& b, const Result& out) {
  return {.a = a.operand, .b = b.operand, .out = out.matrix, .accumulator = Accumulator::native};
}

constexpr auto kNoScale = [](std::int64_t, std::int64_t) { return 1.0F; };

TEST_F(GemmCublasLtMessages, SizesPitchesAndWhichIsWhich) {
  const Operand a(3, 24, nullptr, 1, 64), b(8, 24, nullptr, 2, 80, 16);
  Result out(3, 8, 48);
  ASSERT_TRUE(cuda::gemm_cublaslt({}, job_of(a, b, out)));
  expect_product(out, a, b, kNoScale);
  // cuBLASLt's A is octavo's B.
  EXPECT_EQ(fake_->a_alignment, 16u);
  EXPECT_EQ(fake_->b_alignment, 256u);
  EXPECT_EQ(fake_->d_alignment, 256u);
  EXPECT_EQ(fake_->most_workspace, std::uint64_t{32} << 20);
  EXPECT_EQ(fake_->reductions, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  EXPECT_EQ(fake_->fast_accumulation, -1);
}

TEST_F(GemmCublasLtMessages, ScalesOfTensorsAndOfRows) {
  for (const Format* of_b : {&e4m3fn, &e5m2})
    for (const std::int64_t tile_rows : {std::int64_t{0}, std::int64_t{1}}) {
      Operand a(5, 32, &e4m3fn, 3, 32), b(12, 32, of_b, 4, 48);
      std::vector<float> of_rows(5), of_cols(12);
      for (std::size_t i = 0; i < 5; ++i) of_rows[i] = static_cast<float>(1u << i);
      for (std::size_t i = 0; i < 12; ++i) of_cols[i] = 0.25F * static_cast<float>(1u << i);
      a.scale_by(of_rows, tile_rows);
      b.scale_by(of_cols, tile_rows);
      Result out(5, 12, 48);
      ASSERT_TRUE(cuda::gemm_cublaslt({}, job_of(a, b, out)));
      expect_product(out, a, b, [&](std::int64_t row, std::int64_t col) {
        const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(tile_rows * i); };
        return of_rows[at(row)] * of_cols[at(col)];
      });
      EXPECT_EQ(fake_->fast_accumulation, 0);
      EXPECT_EQ(fake_->a_scale_mode, tile_rows == 1 ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                                    : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
    }
}

TEST_F(GemmCublasLtMessages, IsAskedOncePerProblem) {
  const Operand a(6, 40, nullptr, 1, 80), b(16, 40, nullptr, 2, 80), c(16, 40, nullptr, 3, 80),
      other(16, 40, nullptr, 3, 96);
  Result out(6, 16, 64);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(cuda::gemm_cublaslt({}, job_of(a, b, out)));
    expect_product(out, a, b, kNoScale);
    ASSERT_TRUE(cuda::gemm_cublaslt({}, job_of(a, c, out)));  // other memory of the same layout
    expect_product(out, a, c, kNoScale);
  }
  EXPECT_EQ(fake_->asked, 1);
  ASSERT_TRUE(cuda::gemm_cublaslt({}, job_of(a, other, out)));  // another pitch
  EXPECT_EQ(fake_->asked, 2);
  EXPECT_EQ(fake_->queued, 7);
}

TEST_F(GemmCublasLtMessages, WhatItDeclinesItIsNotAskedAgain) {
  const Operand a(7, 48, nullptr, 1, 96), b(8, 48, nullptr, 2, 96);
  Result out(7, 8, 32);
  fake_->answer = CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cuda::gemm_cublaslt(logged(), job_of(a, b, out)));
  EXPECT_EQ(fake_->asked, 1);
  EXPECT_EQ(fake_->queued, 0);
  EXPECT_TRUE(notes_.empty()) << notes_[0];  // nothing for the user to act on
}

// Out of memory says nothing about the problem.
TEST_F(GemmCublasLtMessages, WhatFailedIsAskedAgain) {
  const Operand a(7, 80, nullptr, 1, 160), b(8, 80, nullptr, 2, 160);
  Result out(7, 8, 32);
  fake_->answer = CUBLAS_STATUS_ALLOC_FAILED;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cuda::gemm_cublaslt(logged(), job_of(a, b, out)));
  EXPECT_EQ(fake_->asked, 3);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_EQ(notes_[0],
            "[gemm] cuBLASLt would be faster for a product, but declines it (no memory); "
            "octavo's kernels run it");
  fake_->answer = CUBLAS_STATUS_SUCCESS;
  ASSERT_TRUE(cuda::gemm_cublaslt(logged(), job_of(a, b, out)));
  expect_product(out, a, b, kNoScale);
}

TEST_F(GemmCublasLtMessages, AHandleIsAskedForAgain) {
  const Operand a(7, 88, nullptr, 1, 176), b(8, 88, nullptr, 2, 176);
  Result out(7, 8, 32);
  fake_->handle = CUBLAS_STATUS_ALLOC_FAILED;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(cuda::gemm_cublaslt(logged(3), job_of(a, b, out)));
  EXPECT_EQ(fake_->asked, 0);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("(no memory)"), std::string::npos) << notes_[0];
  fake_->handle = CUBLAS_STATUS_SUCCESS;
  ASSERT_TRUE(cuda::gemm_cublaslt(logged(3), job_of(a, b, out)));
  expect_product(out, a, b, kNoScale);
}

// Invalid values are the same the next time, so they are cached, and logged, since they are a bug.
TEST_F(GemmCublasLtMessages, WrongValuesAreKeptAndTold) {
  const Operand a(7, 96, nullptr, 1, 192), b(8, 96, nullptr, 2, 192), c(16, 96, nullptr, 2, 192);
  Result out(7, 8, 32), other(7, 16, 64);
  fake_->answer = CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(cuda::gemm_cublaslt(logged(), job_of(a, b, out)));
  EXPECT_EQ(fake_->asked, 1);
  fake_->answer = CUBLAS_STATUS_SUCCESS;
  fake_->status = CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(cuda::gemm_cublaslt(logged(), job_of(a, c, other)));
  EXPECT_EQ(fake_->queued, 1);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("(a wrong value)"), std::string::npos) << notes_[0];
}

TEST_F(GemmCublasLtMessages, WhatItRefusesToQueueItDeclines) {
  const Operand a(9, 56, nullptr, 1, 112), b(8, 56, nullptr, 2, 112);
  Result out(9, 8, 32);
  fake_->status = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_FALSE(cuda::gemm_cublaslt({}, job_of(a, b, out)));
  fake_->status = CUBLAS_STATUS_SUCCESS;
  EXPECT_FALSE(cuda::gemm_cublaslt({}, job_of(a, b, out)));
  EXPECT_EQ(fake_->queued, 1);
}

TEST_F(GemmCublasLtMessages, AFailureIsAnErrorThatSaysHowToDoWithout) {
  const Operand a(9, 64, nullptr, 1, 128), b(8, 64, nullptr, 2, 128);
  Result out(9, 8, 32);
  fake_->status = CUBLAS_STATUS_EXECUTION_FAILED;
  try {
    (void)cuda::gemm_cublaslt({}, job_of(a, b, out));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device);
    EXPECT_STREQ(error.what(),
                 "[cuda] cublasLtMatmul failed with what the stand-in was told to say; "
                 "set OCTAVO_CUDA_LIBRARY_GEMM=0 to use octavo's kernels");
  }
}

// Which products are offered to cuBLASLt: never f32 results or groups, forced or not.
TEST_F(GemmCublasLtMessages, OnlyNativeResultsOf16BitsAreChosen) {
  const Operand a(9, 72, nullptr, 1, 144), b(8, 72, nullptr, 2, 144);
  Result out(9, 8, 32);
  fake_->status = CUBLAS_STATUS_NOT_SUPPORTED;  // counted, not computed
  const auto queued = [&](DType dtype, Accumulator accumulator, bool is_group = false) {
    GemmJob job = job_of(a, b, out);
    job.is_group = is_group;
    job.out.dtype = dtype;
    job.out.col_stride = dtype == DType::f32 ? 4 : 2;
    job.accumulator = accumulator;
    const int before = fake_->queued;
    EXPECT_FALSE(cuda::gemm_cublaslt_if_chosen({}, job));
    return fake_->queued > before;
  };
  const std::optional<bool> before = cuda::force_cublaslt(true);
  EXPECT_FALSE(queued(DType::bf16, Accumulator::native, true));  // a product of a group
  EXPECT_TRUE(queued(DType::bf16, Accumulator::native));
  EXPECT_TRUE(queued(DType::f16, Accumulator::native));
  EXPECT_FALSE(queued(DType::f32, Accumulator::native));
  for (const Accumulator other :
       {Accumulator::f32, Accumulator::f16, Accumulator::f64, Accumulator::hopper_fp8})
    EXPECT_FALSE(queued(DType::bf16, other));
  (void)cuda::force_cublaslt(before);
}

}  // namespace
}  // namespace octavo::testing
