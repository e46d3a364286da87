// Every FP8 GEMM kernel, also those that would not be chosen for these shapes: each tile shape,
// with and without swap-AB, with each kind of scales and each pair of formats has the bits of the
// reference's model.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

using cuda::GemmShape;
using cuda::GemmTiling;
using cuda::kGemmShapes;
using cuda::ScaleKind;

struct Kind {
  const char* preset;
  Tile tile;
};
struct Pair {
  Kind a, b;
};

constexpr Kind kTensor{"fp8", {0, 0}}, kChannel{"fp8-channel", {1, 0}}, kRun{"fp8-1x128", {1, 128}},
    kLong{"fp8-1x128", {1, 256}}, kBlock{"fp8-block", {128, 128}},
    // As many columns as half of a narrow tile, and as many rows as a warpgroup.
    kLow{"fp8-block", {64, 128}};

// One of each kind of scales, with and without swap-AB.
constexpr Pair kKinds[] = {{kChannel, kChannel}, {kRun, kBlock}, {kBlock, kRun}, {kRun, kRun}};
constexpr Pair kOthers[] = {{kTensor, kTensor}, {kChannel, kTensor}, {kRun, kChannel},
                            {kTensor, kBlock},  {kBlock, kBlock},    {kRun, kLow},
                            {kLow, kRun},       {kLong, kBlock}};

Scaling scaling_of(const Kind& kind, const Format& format = e4m3fn) {
  Scaling scaling = testing::scaling_of(kind.preset, format);
  scaling.tile = kind.tile;
  return scaling;
}

std::string to_text(const Pair& pair) {
  const auto side = [](Tile tile) { return text(tile.rows, " x ", tile.cols); };
  return text("scales of ", side(pair.a.tile), " and ", side(pair.b.tile));
}

std::string to_text(const GemmTiling& tiling) {
  return text("tiles of ", tiling.shape.rows(), " x ", tiling.shape.cols,
              tiling.swap_ab ? ", swap-AB" : "", ", kind ", static_cast<int>(tiling.scales));
}

bool has_kernel(const GemmShape& shape, ScaleKind scales) {
  return cuda::has_kernel(cuda::GemmElement::fp8, shape, scales);
}

// With every tile shape, with and without swap-AB.
void for_each_tiling(const GemmJob& job, const std::function<void(const GemmTiling&)>& visit) {
  for (const GemmShape& shape : kGemmShapes)
    for (const bool swap_ab : {false, true}) {
      const GemmTiling tiling = cuda::tiling_of(job, shape, swap_ab);
      if (has_kernel(shape, tiling.scales)) visit(tiling);
    }
}

class GemmKernels : public support::CudaTest {
 protected:
  void expect_same(const QuantizedTensor& a, const QuantizedTensor& b, const std::string& where,
                   DType out_type = DType::f32) {
    const Tensor wanted = model_of(a, b, out_type);
    const QuantizedTensor x = to_device(a, kThere), w = to_device(b, kThere);
    const std::int64_t m = a.shape[0], n = b.shape[0];
    GemmJob job{.a = operand_of(x), .b = operand_of(w), .accumulator = Accumulator::hopper_fp8};
    for_each_tiling(job, [&](const GemmTiling& tiling) {
      const Tensor out = empty_there(m, n, out_type);
      job.out = matrix_of(out.view());
      gemm_in_tiles(kExecThere, job, tiling);
      EXPECT_EQ(differences(to_host(out.view()), wanted), "")
          << where << ", " << to_text(tiling) << ", " << testing::to_text(Sizes{m, n, a.shape[1]});
      seen_.insert({tiling.shape.rows(), tiling.shape.cols, tiling.swap_ab, tiling.scales});
    });
  }
  void expect_same(const Pair& pair, const Sizes& sizes, const Format& a, const Format& b,
                   DType out_type = DType::f32) {
    expect_same(usual_operand(scaling_of(pair.a, a), sizes.m, sizes.k, 1),
                usual_operand(scaling_of(pair.b, b), sizes.n, sizes.k, 2),
                text(to_text(pair), ", ", format_name(a), " by ", format_name(b), " to ",
                     dtype_name(out_type)),
                out_type);
  }
  // For one pair of formats: tile shapes, swap-AB and kinds of scales.
  void expect_all_seen() const {
    std::size_t all = 0;
    for (const GemmShape& shape : kGemmShapes)
      for (const ScaleKind scales :
           {ScaleKind::at_end, ScaleKind::by_row, ScaleKind::by_column, ScaleKind::by_element})
        all += has_kernel(shape, scales) ? 2 : 0;
    EXPECT_EQ(seen_.size(), all);
  }

 private:
  std::set<std::tuple<int, int, bool, ScaleKind>> seen_;
};

// Two clusters and more in either direction, all ragged; K of four stages, one more and a part,
// with rows that TMA reads and rows that are copied for it; then a part of one tile.
const Sizes kRagged[] = {{281, 424, 688}, {417, 281, 571}, {41, 23, 40}, {1, 300, 129}};

TEST_F(GemmKernels, EveryKindOfScales) {
  for (const Pair& pair : kKinds)
    for (const Sizes& sizes : kRagged) expect_same(pair, sizes, e4m3fn, e4m3fn);
  expect_all_seen();
  for (const Pair& pair : kOthers)
    for (const Sizes& sizes : kRagged) expect_same(pair, sizes, e4m3fn, e4m3fn);
}

TEST_F(GemmKernels, EveryPairOfFormats) {
  for (const Format& a : {e4m3fn, e5m2})
    for (const Format& b : {e4m3fn, e5m2})
      for (const Pair& pair : kKinds) expect_same(pair, {281, 417, 300}, a, b);
  expect_all_seen();
}

// Results by TMA store, and such that TMA cannot store.
TEST_F(GemmKernels, EveryTypeOfResult) {
  for (const DType out : {DType::f32, DType::bf16, DType::f16})
    for (const Pair& pair : kKinds)
      for (const Sizes& sizes : {Sizes{281, 424, 272}, Sizes{424, 281, 272}, Sizes{72, 8, 144}})
        expect_same(pair, sizes, e4m3fn, e4m3fn, out);
}

TEST_F(GemmKernels, NanAndInfCodes) {
  const std::int64_t m = 281, n = 417, k = 300;
  for (const Pair& pair : kKinds) {
    const QuantizedTensor a = usual_operand(scaling_of(pair.a, e5m2), m, k, 1),
                          b = usual_operand(scaling_of(pair.b, e4m3fn), n, k, 2);
    const auto put = [&](const QuantizedTensor& to, std::int64_t row, std::int64_t col,
                         unsigned code) {
      to.rowwise.codes.bytes()[static_cast<std::size_t>(row * k + col)] = std::byte(code);
    };
    put(a, 5, 17, 0x7C);     // Inf
    put(a, 100, 290, 0x7F);  // NaN
    put(a, 280, 1, 0xFC);    // -Inf and Inf
    put(a, 280, 2, 0x7C);
    put(b, 9, 3, 0xFF);  // NaN, the only ones of e4m3
    put(b, 416, 299, 0x7F);
    expect_same(a, b, text("NaN and Inf, ", to_text(pair)));
  }
}

// Enough units, for every tile shape with and without swap-AB, that stream-K splits the last ones
// along K on 132 SMs. Some rows of the result are compared with the model, and all tile shapes with
// each other.
TEST_F(GemmKernels, StreamKSplitsTilesAlongK) {
  const Sizes sizes{1900, 1700, 1100};
  if (cuda::clusters_on(kExecThere, 1) != 132) GTEST_SKIP() << "wants 132 multiprocessors";
  for (const Pair& pair : kKinds) {
    const QuantizedTensor a = usual_operand(scaling_of(pair.a), sizes.m, sizes.k, 1),
                          b = usual_operand(scaling_of(pair.b), sizes.n, sizes.k, 2),
                          x = to_device(a, kThere), w = to_device(b, kThere);
    // 128 rows from a multiple of 128 on begin at a tile of scales, whatever the scaling.
    constexpr std::int64_t kFirst = 640, kRows = 128;
    const std::vector<float> all = usual_values(sizes.m, sizes.k, 1);
    const std::vector<float> some(all.begin() + kFirst * sizes.k,
                                  all.begin() + (kFirst + kRows) * sizes.k);
    const Tensor wanted = model_of(quantize(values_as(some, {kRows, sizes.k}, DType::f32).view(),
                                            scaling_of(pair.a), {.backend = &reference_backend()}),
                                   b);
    Tensor first;
    GemmJob job{.a = operand_of(x), .b = operand_of(w), .accumulator = Accumulator::hopper_fp8};
    for_each_tiling(job, [&](const GemmTiling& tiling) {
      const std::string where = text(to_text(pair), ", ", to_text(tiling));
      const GemmShape& shape = tiling.shape;
      if (!shape.uses_stream_k()) return;
      const auto units = [&](int unit, bool of_rows) {
        return static_cast<int>(tile_count(unit, of_rows != tiling.swap_ab ? sizes.m : sizes.n));
      };
      ASSERT_GT(cuda::make_schedule(units(shape.unit_rows(), true), units(shape.unit_cols(), false),
                                    static_cast<int>(tile_count(128, sizes.k)),
                                    cuda::clusters_on(kExecThere, shape.blocks))
                    .stream_k_units,
                0)
          << where;
      const Tensor out = empty_there(sizes.m, sizes.n, DType::f32);
      job.out = matrix_of(out.view());
      gemm_in_tiles(kExecThere, job, tiling);
      const Tensor got = to_host(out.view());
      Wrong wrong;
      for_each_element(wanted, [&](std::int64_t row, std::int64_t col, double value) {
        const double other = oracle::number_at(got.view(), kFirst + row, col);
        if (other != value) wrong.add(kFirst + row, col, other, value);
      });
      EXPECT_EQ(wrong.report(), "") << where;
      if (first.owner() == nullptr) first = got;
      EXPECT_EQ(std::memcmp(got.bytes().data(), first.bytes().data(), got.bytes().size()), 0)
          << where << ": " << differences(got, first);
    });
  }
}

}  // namespace
}  // namespace octavo::testing
