// GEMM on the FP8 tensor cores: bit for bit the reference's model of them, whatever the shape, the
// formats, the scales and the output type, with the tile shape that is chosen; gemm_kernels_test.cc
// runs every kernel.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

class GemmOnTensorCores : public support::CudaTest {
 protected:
  static GemmOptions hopper(DType out = DType::f32) {
    return {.out = out, .accumulator = Accumulator::hopper_fp8};
  }
  static void expect_same(const QuantizedTensor& a, const QuantizedTensor& b,
                          const std::string& where, DType out = DType::f32) {
    const Tensor got =
        to_host(gemm(to_device(a, kThere), to_device(b, kThere), hopper(out)).view());
    EXPECT_EQ(differences(got, model_of(a, b, out)), "") << where;
  }
};

struct Pair {
  const char *a, *b;
};
constexpr Pair kPairs[] = {{"fp8", "fp8"},
                           {"fp8-channel", "fp8-channel"},
                           {"fp8-channel", "fp8"},
                           {"fp8-1x128", "fp8-block"},
                           {"fp8-block", "fp8-1x128"},
                           {"fp8-1x128", "fp8-1x128"},
                           {"fp8-block", "fp8-block"},
                           {"fp8-1x128", "fp8-channel"},
                           {"fp8", "fp8-block"}};

TEST_F(GemmOnTensorCores, EveryScalingOfEveryShape) {
  std::vector<Sizes> shapes = awkward_sizes();
  for (const Sizes& more :
       {Sizes{64, 192, 256}, Sizes{128, 200, 130}, Sizes{192, 256, 128}, Sizes{200, 300, 520},
        Sizes{300, 200, 520}, Sizes{65, 129, 1000}, Sizes{130, 385, 384}})
    shapes.push_back(more);
  unsigned seed = 1;
  for (const Pair& pair : kPairs)
    for (const Sizes& sizes : shapes)
      expect_same(usual_operand(preset(pair.a), sizes.m, sizes.k, seed),
                  usual_operand(preset(pair.b), sizes.n, sizes.k, seed + 1),
                  text(pair.a, " by ", pair.b, ", ", to_text(sizes))),
          seed += 2;
}

TEST_F(GemmOnTensorCores, EveryPairOfFormats) {
  for (const Format& a : {e4m3fn, e5m2})
    for (const Format& b : {e4m3fn, e5m2})
      for (const Pair& pair : {kPairs[1], kPairs[3], kPairs[5]})
        for (const Sizes& sizes : {Sizes{40, 100, 300}, Sizes{100, 70, 300}, Sizes{200, 260, 300}})
          expect_same(usual_operand(scaling_of(pair.a, a), sizes.m, sizes.k, 5),
                      usual_operand(scaling_of(pair.b, b), sizes.n, sizes.k, 6),
                      text(format_name(a), " by ", format_name(b), ", ", pair.a, ", ", pair.b, ", ",
                           to_text(sizes)));
}

TEST_F(GemmOnTensorCores, EveryTypeOfResult) {
  for (const DType out : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& sizes : {Sizes{64, 200, 256}, Sizes{200, 64, 256}, Sizes{100, 128, 256},
                               Sizes{200, 264, 256}, Sizes{264, 392, 256}, Sizes{201, 263, 256}})
      for (const Pair& pair : {kPairs[1], kPairs[3]})
        expect_same(usual_operand(preset(pair.a), sizes.m, sizes.k, 7),
                    usual_operand(preset(pair.b), sizes.n, sizes.k, 8),
                    text(dtype_name(out), " ", pair.a, " ", to_text(sizes)), out);
}

TEST_F(GemmOnTensorCores, NanAndInfCodes) {
  for (const Pair& pair : {kPairs[1], kPairs[3]}) {
    QuantizedTensor a = usual_operand(scaling_of(pair.a, e5m2), 200, 300, 1),
                    b = usual_operand(scaling_of(pair.b, e4m3fn), 260, 300, 2);
    auto codes = a.rowwise.codes.bytes();
    codes[300 * 5 + 17] = std::byte{0x7C};   // Inf
    codes[300 * 6 + 290] = std::byte{0x7F};  // NaN
    codes[300 * 7 + 1] = std::byte{0xFC};    // -Inf
    codes[300 * 7 + 2] = std::byte{0x7C};
    b.rowwise.codes.bytes()[300 * 9 + 3] = std::byte{0xFF};  // NaN
    expect_same(a, b, pair.a);
  }
}

// Rows in any memory order (gaps, reversed, broadcast, overlapping) are multiplied as the view
// says: of A and of B, whether TMA reads them directly or they are copied first.
TEST_F(GemmOnTensorCores, RowsOfCodesInAnyOrder) {
  constexpr std::int64_t kRows = 150, kDepth = 203, kMax = 2 * kDepth;
  std::vector<std::byte> codes(static_cast<std::size_t>(kRows * kMax));
  std::mt19937 random(3);
  for (std::byte& code : codes) code = static_cast<std::byte>(random() % 0x50);
  const std::vector<float> scales(static_cast<std::size_t>(kRows), 0.75F);
  const support::DeviceMemory codes_there(codes.size()), scales_there(kRows * sizeof(float)),
      out_there(kRows * kRows * sizeof(float));
  codes_there.write(codes);
  scales_there.write(std::as_bytes(std::span(scales)));
  struct Rows {
    const char* name;
    std::int64_t first, pitch, rows = kRows;
  };
  const Rows plain{"plain", 0, kDepth};
  const auto operand = [](const Rows& rows, std::byte* at, void* scale) {
    GemmOperand made;
    made.quantized = {.codes = {.data = at + rows.first,
                                .dtype = DType::code,
                                .format = e4m3fn,
                                .rows = rows.rows,
                                .cols = kDepth,
                                .row_pitch = rows.pitch,
                                .col_stride = 1},
                      .scales = {.data = scale,
                                 .dtype = DType::f32,
                                 .rows = rows.rows,
                                 .cols = 1,
                                 .row_pitch = sizeof(float),
                                 .col_stride = sizeof(float)},
                      .tile = {1, 0}};
    return made;
  };
  const auto expect = [&](const Rows& a, const Rows& b) {
    std::vector<float> wanted(static_cast<std::size_t>(a.rows * b.rows), -1.0F);
    const auto job = [&](std::byte* of_codes, void* of_scales, void* out) {
      return GemmJob{.a = operand(a, of_codes, of_scales),
                     .b = operand(b, of_codes, of_scales),
                     .out = {.data = out,
                             .dtype = DType::f32,
                             .rows = a.rows,
                             .cols = b.rows,
                             .row_pitch = b.rows * static_cast<std::int64_t>(sizeof(float)),
                             .col_stride = sizeof(float)},
                     .accumulator = Accumulator::hopper_fp8};
    };
    std::vector<float> same_scales = scales;
    reference_backend().gemm({}, job(codes.data(), same_scales.data(), wanted.data()));
    const GemmJob there = job(codes_there.data(), scales_there.data(), out_there.data());
    ASSERT_TRUE(api().kernels->gemm_offered(there));
    const support::Stream stream;
    api().kernels->gemm(stream.exec(), there);
    stream.wait();
    std::vector<float> got(wanted.size());
    const std::vector<std::byte> bytes = out_there.read(0, got.size() * sizeof(float));
    std::memcpy(got.data(), bytes.data(), bytes.size());
    EXPECT_EQ(got, wanted) << "A " << a.name << ", B " << b.name;
  };
  for (const Rows& rows :
       {Rows{"apart", 1, kDepth + 3}, Rows{"apart, for TMA", 16, 208},
        Rows{"again and again", 7, 0}, Rows{"overlapping", 3, 5},
        Rows{"overlapping, aligned", 32, 48}, Rows{"backwards", (kRows - 1) * kMax, -kMax},
        Rows{"backwards, overlapping", kRows * 16, -16}, Rows{"alone", 5, 0, 1},
        Rows{"alone, backwards", 5, -16, 1}}) {
    expect(rows, plain);
    expect(plain, rows);
    expect(rows, rows);
  }
}

// Enough units that stream-K splits the last ones along K: rows of a large product have the bits
// that they have in a small one.
TEST_F(GemmOnTensorCores, LargeOnesHaveTheBitsOfSmallOnes) {
  for (const Pair& pair : {kPairs[1], kPairs[3], kPairs[5]})
    for (const Sizes& sizes : {Sizes{2500, 1700, 1100}, Sizes{64, 12000, 700},
                               Sizes{128, 9000, 700}, Sizes{1700, 2560, 1024}}) {
      const Scaling by_a = preset(pair.a);
      const std::vector<float> values = usual_values(sizes.m, sizes.k, 3);
      const QuantizedTensor b = usual_operand(preset(pair.b), sizes.n, sizes.k, 4);
      const auto rows_of = [&](std::int64_t first, std::int64_t count) {
        const std::vector<float> part(values.begin() + first * sizes.k,
                                      values.begin() + (first + count) * sizes.k);
        return quantize(values_as(part, {count, sizes.k}, DType::f32).view(), by_a,
                        {.backend = &reference_backend()});
      };
      const Tensor whole = to_host(
          gemm(to_device(rows_of(0, sizes.m), kThere), to_device(b, kThere), hopper()).view());
      for (const std::int64_t first : {std::int64_t{0}, sizes.m / 2, sizes.m - 3}) {
        const Tensor part = model_of(rows_of(first, 3), b);
        int wrong = 0;
        for_each_element(part, [&](std::int64_t row, std::int64_t col, double wanted) {
          wrong += oracle::number_at(whole.view(), first + row, col) != wanted;
        });
        EXPECT_EQ(wrong, 0) << pair.a << " by " << pair.b << ", " << to_text(sizes)
                            << ", rows from " << first;
      }
    }
}

}  // namespace
}  // namespace octavo::testing
