// Transformer Engine's NVFP4 with non-finite values: poisoned tiles, or its own handling, on every
// backend as in the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kRows = 48, kCols = 160;

TEST(Nvfp4TeAgreement, FaultsOnEveryBackend) {
  for (const float fault : {HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = all_kinds_of_values(kRows * kCols, 3, true);
    values[20 * kCols + 70] = fault;
    for (const NonFinite rule : {NonFinite::poison, NonFinite::saturate}) {
      for (const std::int64_t tile_rows : {1, 16}) {
        Scaling scaling = preset("nvfp4");
        scaling.scale.arith = Arith::te;
        scaling.scale.non_finite = rule;
        scaling.tile.rows = tile_rows;
        scaling.encode.nan_input = NanInput::max;
        scaling.columnwise = true;
        const Tensor tensor = values_as(values, {kRows, kCols}, DType::f32);
        const QuantizedTensor wanted =
            quantize(tensor.view(), scaling, {.backend = &reference_backend()});
        const Tensor back = dequantize(wanted);
        const auto seen = back.span<float>()[20 * kCols + 70];
        EXPECT_EQ(std::isnan(seen), rule == NonFinite::poison) << fault;
        for (const BackendInfo& backend : support::every_backend()) {
          const std::string here = text(fault, " ", name_of(rule), ", ", backend.name);
          const QuantizedTensor got =
              quantize(tensor.view(), scaling, {.backend = backend.kernels});
          EXPECT_TRUE(same_bytes(got.rowwise.scales, wanted.rowwise.scales)) << here;
          EXPECT_TRUE(same_bytes(got.rowwise.codes, wanted.rowwise.codes)) << here;
          EXPECT_TRUE(same_bytes(got.columnwise.scales, wanted.columnwise.scales)) << here;
          EXPECT_TRUE(same_bytes(got.columnwise.codes, wanted.columnwise.codes)) << here;
          EXPECT_TRUE(same_bytes(got.rowwise.tensor_scale, wanted.rowwise.tensor_scale)) << here;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
