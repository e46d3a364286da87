#include "octavo/pipeline/compare_checkpoints.h"

#include <cmath>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/checkpoint/dialect/dialect_testing_internal.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/pipeline_testing_internal.h"
#include "octavo/report/gate.h"
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

// Values against codes give the metrics of measure_error; sums agree within its bound.
TEST(CompareCheckpoints, ValuesAndCodes) {
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
      measure_error(value_view(copy.data(), DType::f32, {150, 96}), made.weights[0].row_blocks[0]);
  EXPECT_EQ(got.metrics.elements, wanted.elements);
  EXPECT_EQ(got.metrics.max_abs, wanted.max_abs);
  EXPECT_NEAR(got.metrics.sqnr, wanted.sqnr, 1e-4);  // a relative error of 2e-6 in sums is 1e-5 dB
  EXPECT_NEAR(got.metrics.cosine, wanted.cosine, 1e-5);
  EXPECT_EQ(got.bytes_before, 150U * 96 * 4);
  EXPECT_FALSE(report.notes.empty());  // "other" and the second weight are unpaired
}

// NaN on one side is in no metric, and ranks worst; a mask of Inf is equal on both sides.
TEST(CompareCheckpoints, NanOnEitherSideIsTheWorst) {
  const TemporaryFolder folder;
  const std::vector<float> rough{1, 2, 3, 4}, other{1, 2, 3, 3}, holed{1, NAN, 3, 4},
      mask{0, -INFINITY, NAN, 0};
  const auto write = [&](const char* name, const std::vector<std::vector<float>>& all) {
    std::vector<safetensors::TensorPlan> plans;
    for (std::size_t i = 0; i < all.size(); ++i)
      plans.push_back({text("t", i), safetensors::StoredType::f32, {4}});
    safetensors::FileWriter writer(folder.path(name), plans);
    for (std::size_t i = 0; i < all.size(); ++i)
      writer.write(writer.at(text("t", i)), 0, std::as_bytes(std::span(all[i])));
    writer.finish();
  };
  write("a.safetensors", {rough, holed, rough, mask, rough});
  write("b.safetensors", {other, rough, holed, mask, rough});
  const CheckpointReport report =
      compare_checkpoints(folder.path("a.safetensors"), folder.path("b.safetensors"));
  // t1: NaN in A, t2: NaN in B, t0: SQNR of 15 dB, then the equal ones.
  EXPECT_EQ(report.worst(9), (std::vector<std::size_t>{1, 2, 0, 3, 4}));
  const std::vector<std::int64_t> lost{0, 1, 1, 0, 0};
  const std::vector<bool> equal{false, false, false, true, true};
  for (std::size_t i = 0; i < report.tensors.size(); ++i) {
    EXPECT_EQ(uncounted(report.tensors[i]), lost[i]) << i;
    EXPECT_EQ(is_equal(report.tensors[i]), equal[i]) << i;
  }
  EXPECT_EQ(report.tensors[1].metrics.input.nan, 1);
}

TEST(CompareCheckpoints, AConversionChangesNothingAndDecodingOnlyRounds) {
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

// Counted by hand: 1 -> 1, 2 -> 0 (flushed), 4 -> 5, -8 -> -8, NaN is not counted.
TEST(CompareCheckpoints, NumbersAgainstNumbers) {
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

class CompareStacks : public PipelineTest {};

// An expert stack against its matrices, in both orientations and on either side: the same metrics
// as when quantizing, and nothing is omitted.
TEST_F(CompareStacks, ExpertsInOneTensorAndInMany) {
  for (const bool in_out : {true, false}) {
    SCOPED_TRACE(in_out);
    const std::string model = in_out ? "in_out" : "out_in", out = model + "-q";
    std::filesystem::create_directory(root / model);
    const auto up =
        in_out ? std::vector<std::uint64_t>{3, 128, 512} : std::vector<std::uint64_t>{3, 512, 128};
    const auto down =
        in_out ? std::vector<std::uint64_t>{3, 256, 128} : std::vector<std::uint64_t>{3, 128, 256};
    write_tensors(path(model + "/model.safetensors"),
                  {random_tensor("l.0.mlp.experts.gate_up_proj", up, 1),
                   random_tensor("l.0.mlp.experts.down_proj", down, 2)});
    save(model + "/config.json", "{}");
    const CheckpointReport made =
        quantize_checkpoint(path(model), path(out), recipe("fp8-channel"));
    ASSERT_EQ(made.tensors.size(), 9U);
    const CheckpointReport found = compare_checkpoints(path(model), path(out), {.threads = 2});
    EXPECT_TRUE(found.notes.empty()) << found.notes.front();
    ASSERT_EQ(found.tensors.size(), 9U);
    for (const TensorReport& one : found.tensors) {
      const TensorReport& wanted = tensor(made, one.name);
      EXPECT_EQ(one.metrics.max_abs, wanted.metrics.max_abs) << one.name;
      EXPECT_NEAR(one.metrics.sqnr, wanted.metrics.sqnr, 1e-4) << one.name;
      EXPECT_EQ(one.bytes_before, wanted.bytes_before) << one.name;
    }
    const CheckpointReport other = compare_checkpoints(path(out), path(model), {.threads = 2});
    ASSERT_EQ(other.tensors.size(), 9U);
    EXPECT_EQ(other.tensors[0].metrics.max_abs, found.tensors[0].metrics.max_abs);
    if (in_out) continue;
    // A quantized stack, whose blocks end where its matrices do.
    (void)quantize_checkpoint(path(model), path("stacked"), recipe("fp8-block", Dialect::deepseek));
    (void)quantize_checkpoint(path(model), path("apart"), recipe("fp8-block"));
    const CheckpointReport same = compare_checkpoints(path("stacked"), path("apart"));
    ASSERT_EQ(same.tensors.size(), 9U);
    for (const TensorReport& one : same.tensors) EXPECT_EQ(one.metrics.sums.error2, 0) << one.name;
  }
}

TEST_F(CompareStacks, WhatIsNotComparedIsNoted) {
  write_tensors(path("a.safetensors"), {random_tensor("x", {4, 4}, 1), random_tensor("y", {4}, 2),
                                        random_tensor("z", {4, 2}, 3)});
  write_tensors(path("b.safetensors"),
                {random_tensor("x", {4, 4}, 1), random_tensor("z", {2, 4}, 3)});
  const CheckpointReport report = compare_checkpoints(path("a.safetensors"), path("b.safetensors"));
  ASSERT_EQ(report.notes.size(), 2U);
  EXPECT_EQ(report.notes[0], "not compared, only in the first: 'y'");
  EXPECT_EQ(report.notes[1], "not compared, of another shape in the second: 'z'");
}

// A hundred thousand tensors have a report that can be read.
TEST_F(CompareStacks, OfManyTensorsTheWorstHaveHistograms) {
  std::vector<TestTensor> tensors;
  for (std::size_t i = 0; i < kMaxHistograms + 20; ++i)
    tensors.push_back(random_tensor(text("l.", i, ".o_proj.weight"), {1, 32}, 1));
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"), tensors);
  (void)run("out", recipe("mxfp8"));
  const CheckpointReport report = compare_checkpoints(path("model"), path("out"));
  ASSERT_EQ(report.tensors.size(), tensors.size());
  std::size_t with = 0;
  for (const TensorReport& one : report.tensors) {
    EXPECT_TRUE(one.measured && one.metrics.sqnr > 20);
    with += one.metrics.values.counts.empty() ? 0U : 1U;
    EXPECT_EQ(one.scale_histogram.empty(), one.metrics.values.counts.empty());
  }
  EXPECT_EQ(with, kMaxHistograms);
}

// A limit applies to the whole model: a tensor that only one side has fails it. Static scales
// belong to a dialect and are no part of the model.
TEST_F(CompareStacks, WhatIsNotComparedMissesEveryLimit) {
  const std::vector<Gate> gates{parse_gate("cosine<0.999")};
  const TestTensor x = random_tensor("x.weight", {4, 4}, 1), y = random_tensor("y.weight", {4}, 2),
                   turned = random_tensor("y.weight", {2, 2}, 2);
  const std::vector<TestTensor> all{x, y};
  write_tensors(path("all.safetensors"), all);
  write_tensors(path("less.safetensors"), {x});
  write_tensors(path("turned.safetensors"), {x, turned});
  write_tensors(path("scaled.safetensors"), {x, y, random_tensor("x.input_scale", {1}, 3),
                                             random_tensor("l.self_attn.k_scale", {1}, 3),
                                             random_tensor("l.self_attn.v_proj.v_scale", {1}, 3),
                                             random_tensor("l.self_attn.q_scale", {1}, 3)});
  const auto missed = [&](const char* a, const char* b) {
    return missed_gates(compare_checkpoints(path(a), path(b)), gates);
  };
  EXPECT_TRUE(missed("all.safetensors", "all.safetensors").empty());
  EXPECT_TRUE(missed("all.safetensors", "scaled.safetensors").empty());
  for (const auto& [a, b] : std::vector<std::pair<const char*, const char*>>{
           {"all.safetensors", "less.safetensors"},
           {"less.safetensors", "all.safetensors"},
           {"all.safetensors", "turned.safetensors"}}) {
    const auto found = missed(a, b);
    ASSERT_EQ(found.size(), 1U) << a << " " << b;
    EXPECT_TRUE(has(found[0].what, "'y.weight'") && has(found[0].what, "not compared"))
        << found[0].what;
    EXPECT_EQ(found[0].tensor, "y.weight");
    EXPECT_EQ(found[0].tensors, 1U);
  }
}

// Both are beyond f32, where they would be the same Inf.
TEST_F(CompareStacks, NumbersBeyondF32AreToldApart) {
  const auto write = [&](const char* name, std::vector<double> values) {
    TestTensor one{{"t", safetensors::StoredType::f64, {values.size()}}, {}};
    one.bytes.resize(values.size() * sizeof(double));
    std::memcpy(one.bytes.data(), values.data(), one.bytes.size());
    write_tensors(path(name), {one});
    return path(name);
  };
  const std::string a = write("a.safetensors", {1e300, -1e300, 1, NAN, INFINITY}),
                    b = write("b.safetensors", {2e300, -1e300, 1, NAN, INFINITY}),
                    c = write("c.safetensors", {INFINITY, -1e300, 1, NAN, INFINITY});
  EXPECT_TRUE(is_equal(compare_checkpoints(a, a).tensors[0]));
  for (const std::string& other : {b, c}) {
    const CheckpointReport report = compare_checkpoints(a, other);
    EXPECT_EQ(uncounted(report.tensors[0]), 1) << other;
    EXPECT_FALSE(is_equal(report.tensors[0])) << other;
  }
}

}  // namespace
}  // namespace octavo
