#include "octavo/pipeline/compare_checkpoints.h"

#include <cstring>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect_testing_internal.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/report/metrics.h"

namespace octavo {
namespace {

const TensorReport& tensor(const CheckpointReport& report, std::string_view name) {
  for (const TensorReport& one : report.tensors)
    if (one.name == name) return one;
  throw std::runtime_error("no such tensor");
}

struct Quantized {
  TemporaryFolder quantized, results;
  std::vector<TestWeight> weights;
  explicit Quantized(Dialect dialect, const Scaling& scaling) {
    weights = {make_weight(dialect, "l.0.up_proj.weight", {150, 96}, scaling, 1000),
               make_weight(dialect, "l.1.up_proj.weight", {64, 64}, scaling, 1000)};
    write_checkpoint(quantized, dialect, weights);
  }
};

// Values against codes are what measure_error says of them; sums come within its bound.
TEST(CompareCheckpoints, values_and_codes) {
  const Quantized made(Dialect::comfyui, preset("nvfp4"));
  // The values that were quantized, as a checkpoint of their own.
  const std::vector<float> values = awkward_values(150, 96);
  safetensors::FileWriter writer(made.results.path("a.safetensors"),
                                 {{"l.0.up_proj.weight", safetensors::StoredType::f32, {150, 96}},
                                  {"other", safetensors::StoredType::f32, {1}}});
  writer.write(writer.at("l.0.up_proj.weight"), 0, std::as_bytes(std::span(values)));
  writer.write(writer.at("other"), 0, std::vector<std::byte>(4));
  writer.finish();
  const CheckpointReport report =
      compare_checkpoints(made.results.path("a.safetensors"), made.quantized.path());
  EXPECT_EQ(report.verb, "compare");
  ASSERT_EQ(report.tensors.size(), 1U);
  const TensorReport& got = report.tensors[0];
  EXPECT_EQ(got.preset, "nvfp4");
  std::vector<float> copy = values;
  const ErrorMetrics wanted =
      measure_error(value_view(copy.data(), DType::f32, {150, 96}), made.weights[0].bands[0]);
  EXPECT_EQ(got.metrics.elements, wanted.elements);
  EXPECT_EQ(got.metrics.max_abs, wanted.max_abs);
  EXPECT_NEAR(got.metrics.sqnr, wanted.sqnr, 1e-4);  // 2e-6 of sums is 1e-5 dB
  EXPECT_NEAR(got.metrics.cosine, wanted.cosine, 1e-5);
  EXPECT_EQ(got.bytes_before, 150U * 96 * 4);
  EXPECT_FALSE(report.notes.empty());  // "other" and the second weight stand alone
}

TEST(CompareCheckpoints, a_conversion_changes_nothing_and_decoding_only_rounds) {
  const Quantized made(Dialect::compressed_tensors, preset("mxfp4"));
  (void)convert_checkpoint(made.quantized.path(), made.results.path("same"), Dialect::octavo);
  (void)dequantize_checkpoint(made.quantized.path(), made.results.path("f32"), DType::f32);
  for (const std::string_view other : {"same", "f32"}) {
    const CheckpointReport report =
        compare_checkpoints(made.quantized.path(), made.results.path(other));
    ASSERT_EQ(report.tensors.size(), 3U);
    for (const TensorReport& one : report.tensors) {
      EXPECT_EQ(one.metrics.sums.error2, 0) << one.name;
      EXPECT_EQ(one.metrics.cosine, 1) << one.name;
    }
  }
}

// Counted by hand: 1 -> 1, 2 -> 0 (flushed), 4 -> 5, -8 -> -8, NaN stays out.
TEST(CompareCheckpoints, numbers_against_numbers) {
  const TemporaryFolder folder;
  const auto save = [&](const std::string& name, std::vector<float> values) {
    safetensors::FileWriter writer(folder.path(name),
                                   {{"w", safetensors::StoredType::f32, {values.size()}}});
    writer.write(writer.at("w"), 0, std::as_bytes(std::span(values)));
    writer.finish();
    return folder.path(name);
  };
  const std::string a = save("a.safetensors", {1, 2, 4, -8, NAN});
  const std::string b = save("b.safetensors", {1, 0, 5, -8, 3});
  const CheckpointReport report = compare_checkpoints(a, b, {.threads = 2});
  const ErrorMetrics& metrics = tensor(report, "w").metrics;
  EXPECT_EQ(metrics.elements, 5);
  EXPECT_EQ(metrics.sums.count, 4);
  EXPECT_EQ(metrics.sums.error2, 5);
  EXPECT_EQ(metrics.sums.value2, 85);
  EXPECT_EQ(metrics.max_abs, 2);
  EXPECT_EQ(metrics.flushed, 1);
  EXPECT_EQ(metrics.input.nan, 1);
  const std::string c = save("c.safetensors", {1, 2});
  EXPECT_THROW((void)compare_checkpoints(a, c), Error);
}

}  // namespace
}  // namespace octavo
