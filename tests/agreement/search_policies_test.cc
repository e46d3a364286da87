// Policies that look at more than the amax, beside the reference: every tile size from one value
// on, ranks from the smallest to the largest, and one scale for tensors of any strides.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

Scaling with_policy(Scaling scaling, std::string_view policy) {
  parse_amax_policy(policy, scaling);
  return scaling;
}

void expect_same_copy(const QuantizedTensor& got, const QuantizedTensor& wanted,
                      const std::string& where) {
  EXPECT_TRUE(same_bytes(got.rowwise.scales, wanted.rowwise.scales)) << where << ", scales";
  EXPECT_TRUE(same_bytes(got.rowwise.codes, wanted.rowwise.codes)) << where << ", codes";
}

void expect_backends_agree(const View& values, const Scaling& scaling, const std::string& where,
                           std::span<const float> weights = {}) {
  const QuantizedTensor wanted =
      quantize(values, scaling, {.column_weights = weights, .backend = &reference_backend()});
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.name == "reference") continue;
    for (const int threads : {1, 3}) {
      if (threads > 1 && support::is_staged(backend)) break;
      const QuantizedTensor got =
          quantize(values, scaling,
                   {.threads = threads, .column_weights = weights, .backend = backend.kernels});
      expect_same_copy(got, wanted, text(where, ", ", backend.name, ", ", threads, " threads"));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(SearchPolicies, RanksOfEveryTileWidth) {
  // 17 rows of 200 values: whole tiles, and ragged ones at the edge.
  const std::vector<float> values = all_kinds_of_values(17 * 200, 31);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor tensor = values_as(values, {17, 200}, dtype);
    for (const std::int64_t cols :
         {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 160, 200}) {
      for (const char* policy : {"percentile:0.1", "percentile:50", "percentile:90",
                                 "percentile:95", "percentile:99", "percentile:100"}) {
        Scaling scaling = with_policy(preset("fp8-1x128"), policy);
        scaling.tile.cols = cols;
        expect_backends_agree(tensor.view(), scaling,
                              text(policy, ", 1x", cols, " ", dtype_name(dtype)));
        if (HasFailure()) return;
      }
    }
  }
}

// Blocks that kernels quantize in one pass, packed codes and others, short rows and long ones;
// values far above the percentile.
TEST(SearchPolicies, RanksOfMxBlocks) {
  for (const std::int64_t cols : {32, 96, 250, 256, 8192 + 64}) {
    std::vector<float> values = all_kinds_of_values(5 * cols, 36, cols > 8000);
    values[7] = 3e38F;  // beside others of every size: its product with the factor overflows
    // A row of blocks of 32 zeros, and of 31 and a number: a rank of zero is not an amax of zero.
    for (std::int64_t i = 0; i < cols; ++i)
      values[static_cast<std::size_t>(4 * cols + i)] = i % 64 == 33 ? -0.75F : 0.0F;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor tensor = values_as(values, {5, cols}, dtype);
      for (const char* name : {"mxfp8", "mxfp6", "mxfp4"}) {
        for (const ScaleRule rule : {ScaleRule::rceil, ScaleRule::floor}) {
          for (const char* policy :
               {"percentile:40", "percentile:50", "percentile:90", "percentile:99"}) {
            Scaling scaling = with_policy(preset(name), policy);
            scaling.scale.rule = rule;
            expect_backends_agree(tensor.view(), scaling,
                                  text(name, " ", policy, ", 5x", cols, " ", dtype_name(dtype)));
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(SearchPolicies, RanksOfTilesOfSeveralRows) {
  const std::vector<float> values = all_kinds_of_values(70 * 90, 32);
  const Tensor tensor = values_as(values, {70, 90}, DType::bf16);
  for (const Tile tile :
       {Tile{2, 8}, Tile{3, 5}, Tile{16, 16}, Tile{64, 64}, Tile{0, 3}, Tile{70, 32}, Tile{0, 0}}) {
    for (const char* policy : {"percentile:50", "percentile:90", "percentile:99.5"}) {
      Scaling scaling = with_policy(preset("fp8"), policy);
      scaling.tile = tile;
      expect_backends_agree(tensor.view(), scaling, text(policy, ", ", tile.rows, "x", tile.cols));
    }
  }
}

TEST(SearchPolicies, LeastErrorsOfEveryTileWidth) {
  const std::vector<float> values = all_kinds_of_values(13 * 200, 33);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor tensor = values_as(values, {13, 200}, dtype);
    for (const char* name : {"nvfp4", "mxfp4", "mxfp8", "fp8-1x128"}) {
      for (const std::int64_t cols :
           {1, 3, 8, 15, 16, 17, 31, 32, 33, 48, 64, 127, 128, 129, 144, 200}) {
        Scaling scaling = with_policy(preset(name), "mse");
        scaling.tile.cols = cols;
        expect_backends_agree(tensor.view(), scaling,
                              text(name, " mse, 1x", cols, " ", dtype_name(dtype)));
        if (HasFailure()) return;
      }
    }
  }
}

std::vector<float> column_weights(std::int64_t cols) {
  std::vector<float> weights;
  for (std::int64_t col = 0; col < cols; ++col)
    weights.push_back(static_cast<float>(col * 37 % 11) *
                      std::exp2(static_cast<float>(col % 7 - 3)));
  return weights;
}

// Also where the square of an error is infinite, which times zero would be NaN, and every candidate
// as bad as another. With this amax of the tensor the code 384 of e4m3 is the scale 1/4, of which
// all other values are six times.
TEST(SearchPolicies, ColumnsOfWeightZeroHaveNoError) {
  constexpr float kAmax = 1.0F;
  constexpr std::byte k384{0x7C};
  for (const std::int64_t cols : {16, 48, 128, 200}) {
    std::vector<float> values(static_cast<std::size_t>(cols), 1.5F),
        weights(static_cast<std::size_t>(cols), 1.0F);
    values[5] = 1e30F;
    weights[5] = 0.0F;
    Scaling scaling = with_policy(preset("nvfp4"), "wmse");
    scaling.tile.cols = cols;
    const View view = value_view(values.data(), DType::f32, {1, cols});
    for (const BackendInfo& backend : support::every_backend()) {
      const QuantizedTensor got =
          quantize(view, scaling,
                   {.given_amax = &kAmax, .column_weights = weights, .backend = backend.kernels});
      EXPECT_EQ(got.rowwise.scales.bytes()[0], k384) << backend.name << ", 1x" << cols;
    }
  }
}

TEST(SearchPolicies, WeightedErrorsOfEveryTileWidth) {
  const std::vector<float> values = all_kinds_of_values(13 * 200, 36);
  const std::vector<float> weights = column_weights(200);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor tensor = values_as(values, {13, 200}, dtype);
    for (const char* name : {"nvfp4", "mxfp4", "mxfp8", "fp8-1x128"}) {
      for (const std::int64_t cols : {1, 8, 16, 17, 31, 32, 64, 128, 129, 200}) {
        Scaling scaling = with_policy(preset(name), "wmse");
        scaling.tile.cols = cols;
        expect_backends_agree(tensor.view(), scaling,
                              text(name, " wmse, 1x", cols, " ", dtype_name(dtype)), weights);
        if (HasFailure()) return;
      }
    }
    for (const char* name : {"fp8", "fp8-channel"}) {
      Scaling scaling = with_policy(preset(name), "wmse");
      if (scaling.tile.rows == 0) scaling.tile = {5, 70};
      expect_backends_agree(tensor.view(), scaling, text(name, " wmse ", dtype_name(dtype)),
                            weights);
    }
  }
}

TEST(SearchPolicies, FourOverSixAndModelOptsSweepOfEveryTileWidth) {
  const std::vector<float> values = all_kinds_of_values(7 * 176, 37);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor tensor = values_as(values, {7, 176}, dtype);
    for (const char* policy : {"4over6", "modelopt_sweep"}) {
      for (const std::int64_t cols : {1, 8, 15, 16, 17, 32, 64, 176}) {
        Scaling scaling = with_policy(preset("nvfp4"), policy);
        scaling.encode.nan_input = NanInput::zero;
        scaling.tile.cols = cols;
        expect_backends_agree(tensor.view(), scaling,
                              text(policy, ", 1x", cols, " ", dtype_name(dtype)));
        if (HasFailure()) return;
      }
    }
  }
}

// Blocks that the fast kernels treat apart: values on the grid of a candidate, ties of two
// candidates, every exponent of the tensor's scale.
TEST(SearchPolicies, LeastErrorsOfManyBlocks) {
  std::mt19937 random(34);
  std::normal_distribution<float> normal;
  constexpr std::int64_t kRows = 64, kCols = 1024;
  constexpr float kGrid[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (int round = 0; round < 6; ++round) {
    std::vector<float> values(kRows * kCols);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float grid = kGrid[random() % 8] * (random() % 2 == 0 ? 1.0F : -1.0F);
      const float spread = std::exp2(static_cast<float>(static_cast<int>(i / 16 % 24) - 12));
      values[i] = round % 3 == 0 ? normal(random)
                  : round % 3 == 1
                      ? grid * spread
                      : static_cast<float>(static_cast<int>(random() % 33) - 16) * spread;
    }
    const Tensor tensor = values_as(values, {kRows, kCols}, round < 3 ? DType::f32 : DType::bf16);
    for (const char* name : {"nvfp4", "mxfp4"}) {
      expect_backends_agree(tensor.view(), with_policy(preset(name), "mse"),
                            text(name, " mse, round ", round));
      if (HasFailure()) return;
    }
    expect_backends_agree(tensor.view(), with_policy(preset("nvfp4"), "4over6"),
                          text("4over6, round ", round));
    expect_backends_agree(tensor.view(), with_policy(preset("nvfp4"), "wmse"),
                          text("wmse, round ", round), column_weights(kCols));
    if (HasFailure()) return;
  }
}

// One scale for a tensor, whatever its strides: as for a contiguous copy.
class Strided : public ::testing::TestWithParam<const char*> {
 protected:
  // [5, 6, 7, 40] in memory.
  Strided()
      : tensor_(
            values_as(all_kinds_of_values(5 * 6 * 7 * 40, 35, true), {5, 6, 7, 40}, DType::f32)) {}

  static Tensor dense_copy(const View& view) {
    Tensor out = Tensor::values(view.shape, view.dtype);
    const auto size = static_cast<std::size_t>(element_bytes(view.dtype, {}));
    auto* to = out.bytes().data();
    const Shape& s = view.shape;
    for (std::int64_t a = 0; a < s[0]; ++a)
      for (std::int64_t b = 0; b < s[1]; ++b)
        for (std::int64_t c = 0; c < s[2]; ++c)
          for (std::int64_t d = 0; d < s[3]; ++d, to += size)
            std::memcpy(to,
                        static_cast<const std::byte*>(view.data) + a * view.strides[0] +
                            b * view.strides[1] + c * view.strides[2] + d * view.strides[3],
                        size);
    return out;
  }

  Tensor tensor_;
};

TEST_P(Strided, GivesTheBytesOfAContiguousCopy) {
  std::vector<std::pair<std::string, View>> views;
  const auto change = [&](std::string name, auto&& edit) {
    View view = tensor_.view();
    edit(view);
    views.emplace_back(std::move(name), view);
  };
  const auto swap_dims = [](View& view, int a, int b) {
    std::swap(view.shape[a], view.shape[b]);
    std::swap(view.strides[a], view.strides[b]);
  };
  change("as it is", [](View&) {});
  change("sliced", [](View& v) {
    v.shape[1] = 4;
    v.shape[3] = 33;
  });
  change("every other", [](View& v) {
    v.shape[0] = 3;
    v.strides[0] *= 2;
    v.shape[3] = 20;
    v.strides[3] *= 2;
  });
  change("permuted", [&](View& v) { swap_dims(v, 0, 2); });
  change("transposed", [&](View& v) {
    swap_dims(v, 2, 3);
    swap_dims(v, 0, 1);
  });
  change("backwards", [](View& v) {
    for (const int dim : {0, 2, 3}) {
      v.data = static_cast<std::byte*>(v.data) + (v.shape[dim] - 1) * v.strides[dim];
      v.strides[dim] = -v.strides[dim];
    }
  });
  change("broadcast", [](View& v) { v.strides[1] = 0; });
  std::vector<std::pair<std::string, Scaling>> scalings{{"f32", preset("fp8")},
                                                        {"rceil", preset("fp8")},
                                                        {"e8m0", preset("mxfp4")},
                                                        {"stochastic", preset("fp8")},
                                                        {"saturate", preset("fp8:e5m2")}};
  scalings[1].second.scale.rule = ScaleRule::rceil;
  scalings[2].second.tile = {0, 0};
  scalings[3].second.encode.rounding = Rounding::stochastic;
  scalings[4].second.scale.non_finite = NonFinite::saturate;
  for (const auto& [name, view] : views) {
    const Tensor dense = dense_copy(view);
    for (const auto& [kind, base] : scalings) {
      const Scaling scaling = with_policy(base, GetParam());
      const QuantizedTensor wanted =
          quantize(dense.view(), scaling, {.backend = &reference_backend()});
      for (const BackendInfo& backend : support::every_backend()) {
        const QuantizedTensor got =
            quantize(as_read_only(view), scaling, {.threads = 2, .backend = backend.kernels});
        expect_same_copy(got, wanted, text(GetParam(), ", ", name, ", ", kind, ", ", backend.name));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Strided,
                         ::testing::Values("percentile:3", "percentile:90", "percentile:99.9",
                                           "mse"),
                         [](const auto& case_info) {
                           std::string name = case_info.param;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace octavo::testing
