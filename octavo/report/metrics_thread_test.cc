// The same bits for any number of threads, on any backend.
#include <gtest/gtest.h>

#include "octavo/report/metrics.h"
#include "octavo/report/metrics_testing_internal.h"

namespace octavo {
namespace {

// More pieces than any number of threads here takes at once, rows and tiles that pieces cut.
TEST(MetricsThreads, DoNotChangeABit) {
  const Tensor x = testing::sample_values({37, 10007}, DType::bf16);
  for (const char* name : {"fp8", "fp8-channel", "fp8-block", "mxfp8", "nvfp4"}) {
    const QuantizedTensor q = quantize(x.view(), preset(name));
    MetricOptions options{.rows = true, .tiles = true, .histograms = true, .threads = 1};
    const ErrorMetrics alone = measure_error(x.view(), q, options);
    for (const int threads : {2, 3, 7, 0}) {
      options.threads = threads;
      EXPECT_TRUE(measure_error(x.view(), q, options) == alone) << name << ' ' << threads;
    }
    options.backend = &reference_backend();
    EXPECT_TRUE(measure_error(x.view(), q, options) == alone) << name << " reference";
  }
}

}  // namespace
}  // namespace octavo
