#include "octavo/pipeline/quantize_checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <set>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/verify/loader_verdict.h"
#include "octavo/pipeline/pipeline_testing_internal.h"
#include "octavo/pipeline/plan/target_alternatives_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

class QuantizeCheckpointTest : public PipelineTest {};

// The oracle: whole tensors at once, with the library's own quantize.
Tensor whole_weight(const CheckpointReader& reader, const std::string& name) {
  return reader.files()[reader.at(name).file].read_tensor(*reader.at(name).entry);
}

TEST_F(QuantizeCheckpointTest, WritesWhatQuantizeMakesOfWholeTensors) {
  write_model();
  const CheckpointReader source(path("model"));
  for (const char* const name : {"fp8-block", "fp8-channel", "mxfp8"}) {
    QuantizeCheckpointOptions options = recipe(name);
    options.plan.bf16_scales = false;
    const CheckpointReport report = run(name, options);
    const CheckpointReader out(path(name));
    for (const char* const module :
         {"model.layers.0.mlp.down_proj", "model.layers.1.mlp.up_proj"}) {
      const Tensor values = whole_weight(source, std::string(module) + ".weight");
      const QuantizedTensor q = quantize(values.view(), preset(name));
      const Tensor codes = whole_weight(out, std::string(module) + ".weight");
      EXPECT_TRUE(std::ranges::equal(codes.bytes(), q.rowwise.codes.bytes())) << name << module;
      std::vector<std::byte> scales(out.at(std::string(module) + ".weight_scale").nbytes());
      out.read(out.at(std::string(module) + ".weight_scale"), 0, scales);
      EXPECT_TRUE(std::ranges::equal(scales, q.rowwise.scales.bytes())) << name << module;
      const ErrorMetrics exact = measure_error(values.view(), q);
      for (const TensorReport& tensor : report.tensors)
        if (tensor.module == module) {
          EXPECT_NEAR(tensor.metrics.sqnr, exact.sqnr, 3e-5);
        }
    }
    EXPECT_EQ(content_of(path(std::string(name) + "/tokenizer.json")), "{\"a\": 1}");
    EXPECT_EQ(out.config()["octavo"]["recipe"].string_or(""), name);
    EXPECT_EQ(out.config()["hidden_size"].integer_or(0), 256);
    EXPECT_EQ(out.nbytes(), report.bytes_after);
    EXPECT_FALSE(std::filesystem::exists(path(std::string(name) + "/octavo-progress.json")));
    EXPECT_TRUE(recognize(out).quantized);
  }
}

TEST_F(QuantizeCheckpointTest, SharedScalesComeFromTheLargestOfAll) {
  write_model();
  QuantizeCheckpointOptions options = recipe("nvfp4");
  (void)run("out", options);
  const CheckpointReader out(path("out")), source(path("model"));
  const std::string prefix = "model.layers.0.self_attn.";
  float amax_of_all = 0;
  for (const char* const name : {"q_proj", "k_proj", "v_proj"})
    amax_of_all =
        std::max(amax_of_all, amax(whole_weight(source, prefix + name + ".weight").view()));
  for (const char* const name : {"q_proj", "k_proj", "v_proj"}) {
    const Tensor values = whole_weight(source, prefix + name + ".weight");
    const QuantizedTensor q =
        quantize(values.view(), preset("nvfp4"), {.given_amax = &amax_of_all});
    std::vector<std::byte> codes(out.at(prefix + name + ".weight_packed").nbytes());
    out.read(out.at(prefix + name + ".weight_packed"), 0, codes);
    EXPECT_TRUE(std::ranges::equal(codes, q.rowwise.codes.bytes())) << name;
  }
}

TEST_F(QuantizeCheckpointTest, ScalesOfBf16PrecisionSaturateNothing) {
  write_model();
  const CheckpointReport report = run("out", recipe("fp8-channel"));
  const CheckpointReader out(path("out"));
  const Tensor scales = whole_weight(out, "model.layers.0.mlp.up_proj.weight_scale");
  ASSERT_EQ(scales.dtype(), DType::f32);
  for (const std::uint32_t bits : scales.span<std::uint32_t>()) EXPECT_EQ(bits & 0xFFFF, 0U);
  for (const TensorReport& tensor : report.tensors) EXPECT_EQ(tensor.metrics.saturated, 0);
}

TEST_F(QuantizeCheckpointTest, ExpertsOfAStackAreTransposed) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"),
                {random_tensor("l.0.mlp.experts.gate_up_proj", {2, 64, 256}, 1),
                 random_tensor("l.0.mlp.experts.down_proj", {2, 128, 64}, 2)});
  (void)run("out", recipe("mxfp8"));
  const CheckpointReader source(path("model")), out(path("out"));
  const Tensor stack = whole_weight(source, "l.0.mlp.experts.gate_up_proj");
  View expert = stack.view();  // `up` of expert 1: columns 128.. of matrix 1, viewed as rows
  expert.data = static_cast<std::byte*>(expert.data) + expert.strides[0] + 128 * expert.strides[2];
  expert.shape = {128, 64};
  expert.strides = {stack.view().strides[2], stack.view().strides[1]};
  const QuantizedTensor q = quantize(expert, preset("mxfp8"));
  const Tensor codes = whole_weight(out, "l.0.mlp.experts.1.up_proj.weight");
  EXPECT_TRUE(std::ranges::equal(codes.bytes(), q.rowwise.codes.bytes()));
}

// Advice is feasible: the target supports it, in a mix with the others' schemes.
TEST_F(QuantizeCheckpointTest, AdviceIsWhatTheTargetCanHold) {
  write_model();
  const auto advised = [&](const std::string& by, Dialect target) {
    std::filesystem::remove_all(path("out"));
    std::set<std::string> out;
    for (const TensorReport& tensor : run("out", recipe(by, target)).tensors)
      if (tensor.measured) out.insert(tensor.advice.substr(0, tensor.advice.find(' ')));
    return out;
  };
  using Names = std::set<std::string>;
  // NVFP4 with activations of 16 bits would take MXFP4 from a loader that has it.
  EXPECT_EQ(advised("mxfp4", Dialect::compressed_tensors), Names{"fp8-channel"});
  EXPECT_EQ(advised("nvfp4", Dialect::compressed_tensors), Names{"fp8-channel"});
  EXPECT_EQ(advised("nvfp4", Dialect::comfyui), Names{"mxfp8"});  // comfyui's fp8 is per-tensor
  // A target with one scheme per model: no advice for a single weight.
  const QuantizedWeight weight{.name = "l.0.up_proj.weight",
                               .module = "l.0.up_proj",
                               .shape = {256, 256},
                               .source = DType::bf16,
                               .scaling = preset("mxfp8")};
  using List = std::vector<std::string_view>;
  const CheckpointReader source(path("model"));
  EXPECT_EQ(TargetAlternatives(source, Dialect::deepseek).of(weight), List{"mxfp8"});
  EXPECT_EQ(TargetAlternatives(source, Dialect::modelopt).of(weight),
            (List{"nvfp4", "fp8-channel", "fp8-block", "mxfp8"}));
}

// An advised recipe loads wherever the present one does.
TEST_F(QuantizeCheckpointTest, AdviceTakesTheModelFromNoLoader) {
  write_model();
  // Of a known model type tensors would be missing.
  save("model/config.json", R"({"architectures": ["SomeForCausalLM"], "model_type": "some"})");
  const auto loads = [&](const std::string& out) {
    const VerifyOptions servers{
        .loaders = {Loader::vllm, Loader::transformers, Loader::sglang, Loader::trtllm}};
    const std::vector<Finding> findings = verify(CheckpointReader(path(out)), servers);
    const std::vector<std::string> names = verdict_of(servers.loaders, findings).loads;
    return std::set<std::string>(names.begin(), names.end());
  };
  for (const Dialect target : {Dialect::compressed_tensors, Dialect::modelopt})
    for (const char* by : {"mxfp4", "nvfp4", "fp8"}) {
      for (const char* folder : {"out", "followed"}) std::filesystem::remove_all(path(folder));
      QuantizeCheckpointOptions options = recipe(by, target);
      std::vector<SharedAdvice> advice;
      try {
        advice = run("out", options).advice;
      } catch (const Error&) {
        continue;  // this target has no such recipe
      }
      for (const SharedAdvice& shared : advice) {
        const std::size_t cut = shared.recipe_for.rfind('=');
        ASSERT_NE(cut, std::string::npos) << shared.what;
        options.plan.recipe_for.emplace_back(shared.recipe_for.substr(0, cut),
                                             shared.recipe_for.substr(cut + 1));
      }
      if (advice.empty()) continue;
      const CheckpointReport followed = run("followed", options);
      for (const TensorReport& tensor : followed.tensors)
        EXPECT_NE(tensor.preset, by) << tensor.name;
      const std::set<std::string> now = loads("out"), then = loads("followed");
      EXPECT_TRUE(std::includes(then.begin(), then.end(), now.begin(), now.end())) << by;
    }
}

// Each tensor's own option changes it, what servers load as one with it, and nothing else.
TEST_F(QuantizeCheckpointTest, AnAdviceIsAnOptionForItsTensor) {
  write_model();
  const CheckpointReport report = run("out", recipe("nvfp4"));
  const auto of = [&](const CheckpointReport& in, const std::string& name) {
    return *std::find_if(in.tensors.begin(), in.tensors.end(),
                         [&](const TensorReport& tensor) { return tensor.name == name; });
  };
  const std::string down = "model.layers.1.mlp.down_proj.weight",
                    k = "model.layers.0.self_attn.k_proj.weight";
  EXPECT_EQ(of(report, down).recipe_for,
            R"(^model\.layers\.1\.mlp\.down_proj\.weight$=fp8-channel)");
  EXPECT_EQ(of(report, k).recipe_for,
            R"(^model\.layers\.0\.self_attn\.(k_proj|q_proj|v_proj)\.weight$=fp8-channel)");
  QuantizeCheckpointOptions options = recipe("nvfp4");
  options.plan.recipe_for = {
      {R"(^model\.layers\.0\.self_attn\.(k_proj|q_proj|v_proj)\.weight$)", "fp8-channel"}};
  int changed = 0;
  for (const TensorReport& tensor : run("other", options).tensors)
    changed += tensor.preset == "fp8-channel";
  EXPECT_EQ(changed, 3);
  ASSERT_EQ(report.advice.size(), 1U);
  EXPECT_EQ(report.advice[0].tensors, 12);
  EXPECT_EQ(report.advice[0].tensor, report.tensors[report.worst(1)[0]].name);
}

TEST_F(QuantizeCheckpointTest, NonFiniteWeightsAreRefusedOrClamped) {
  write_model();
  TestTensor bad = random_tensor("model.layers.0.self_attn.q_proj.weight", {256, 256}, 1);
  const std::uint16_t nan = 0x7FC0, inf = 0xFF80;
  std::memcpy(bad.bytes.data() + 2 * (200 * 256 + 17), &nan, 2);
  std::memcpy(bad.bytes.data() + 2 * (201 * 256 + 18), &inf, 2);
  std::filesystem::remove_all(root / "model");
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"), {bad});
  for (const char* const name : {"fp8", "mxfp8"}) {  // detected in the first and in the second pass
    const std::string message = refusal("out", ErrorCode::invalid_argument, recipe(name));
    EXPECT_TRUE(has(message, "NaN at [200, 17]") && has(message, "q_proj.weight")) << message;
    EXPECT_FALSE(std::filesystem::exists(path("out")));
  }
  QuantizeCheckpointOptions options = recipe("mxfp8");
  options.plan.clamp_non_finite = true;
  const CheckpointReport report = run("out", options);
  EXPECT_EQ(report.tensors[0].metrics.input, (NonFiniteCounts{.nan = 1, .inf = 1}));
  EXPECT_EQ(report.tensors[0].metrics.result, NonFiniteCounts{});
  EXPECT_TRUE(has(report.notes.back(), "clamped"));
}

TEST_F(QuantizeCheckpointTest, NeverInPlaceAndNeverOverOthers) {
  write_model();
  const auto before = contents_of(path("model"));
  EXPECT_TRUE(has(refusal("model", ErrorCode::io), "in place"));
  std::filesystem::create_directory_symlink(path("model"), path("link"));
  EXPECT_TRUE(has(refusal("link", ErrorCode::io), "in place"));
  EXPECT_TRUE(has(refusal("model/.", ErrorCode::io), "in place"));
  save("full/notes.txt", "mine");
  EXPECT_TRUE(has(refusal("full", ErrorCode::io), "not empty"));
  QuantizeCheckpointOptions resume;
  resume.resume = true;
  EXPECT_TRUE(has(refusal("full", ErrorCode::io, resume), "not empty"));
  save("file", "mine");
  EXPECT_TRUE(has(refusal("file", ErrorCode::io), "folder"));
  EXPECT_EQ(contents_of(path("model")), before);
  // One file, through a link.
  write_tensors(path("one.safetensors"), {random_tensor("a.q_proj.weight", {128, 128}, 1)});
  std::filesystem::create_symlink(path("one.safetensors"), path("two.safetensors"));
  EXPECT_TRUE(has(message_of(
                      [&] {
                        (void)quantize_checkpoint(path("one.safetensors"), path("two.safetensors"),
                                                  recipe("mxfp8", Dialect::octavo));
                      },
                      ErrorCode::io),
                  "also a file to read"));
}

TEST_F(QuantizeCheckpointTest, OneFileIntoOneFile) {
  write_tensors(path("model"), {random_tensor("a.q_proj.weight", {128, 128}, 1)});
  (void)run("out.safetensors", recipe("mxfp8", Dialect::octavo));
  EXPECT_TRUE(recognize(CheckpointReader(path("out.safetensors"))).quantized);
}

TEST_F(QuantizeCheckpointTest, HonoursTheUmask) {
  write_model();
  const mode_t before = umask(027);
  (void)run("out");
  umask(before);
  for (const char* const name :
       {"config.json", "model-00001-of-00002.safetensors", "tokenizer.json"}) {
    struct stat status {};
    ASSERT_EQ(stat(path(std::string("out/") + name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0640U) << name;
  }
}

TEST_F(QuantizeCheckpointTest, AFullDiskIsAnErrorAndLeavesNothing) {
  write_model();
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 500'000, before.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = refusal("out", ErrorCode::io);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  EXPECT_TRUE(has(message, "reserve")) << message;
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(QuantizeCheckpointTest, ASourceThatShrinksIsAnError) {
  write_model();
  const CheckpointReader source(path("model"));
  const QuantizeCheckpointOptions options = recipe("fp8-channel");
  const QuantizePlan plan = plan_quantize(source, options.plan);
  std::filesystem::resize_file(path("model/model-00002-of-00002.safetensors"), 100'000);
  const auto none = [] { return std::vector<std::string>(); };
  OutputFolder folder(path("out"), source, {"", "", "", none}, false);
  const std::string message = message_of(
      [&] { (void)stream_checkpoint(source, plan, options, {.folder = &folder, .file = {}}); },
      ErrorCode::io);
  EXPECT_TRUE(has(message, "changed while it was read")) << message;
  EXPECT_FALSE(std::filesystem::exists(path("out/model-00002-of-00002.safetensors")));
}

TEST_F(QuantizeCheckpointTest, StopsWhenAskedTo) {
  write_model();
  QuantizeCheckpointOptions options;
  options.on_progress = [](const Progress&) { return false; };
  EXPECT_TRUE(has(refusal("out", ErrorCode::unsupported, options), "stopped"));
  std::uint64_t done = 0, total = 0;
  options.on_progress = [&](const Progress& progress) {
    done = progress.bytes_done;
    total = progress.bytes_total;
    return true;
  };
  options.resume = true;
  (void)run("out", options);
  EXPECT_EQ(done, total);
}

TEST_F(QuantizeCheckpointTest, MemoryIsCheckedBeforeTheWork) {
  write_model();
  QuantizeCheckpointOptions options;
  options.max_memory = 1 << 20;
  EXPECT_TRUE(has(refusal("out", ErrorCode::invalid_argument, options), "max_memory"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(QuantizeCheckpointTest, EmptyTensorsAndHostileNames) {
  std::filesystem::create_directory(root / "model");
  const std::string hostile("../../<script>\n\0.q_proj.weight", 30);
  TestTensor empty{{"none.weight", safetensors::StoredType::bf16, {0, 4}}, {}};
  write_tensors(path("model/model.safetensors"), {random_tensor(hostile, {128, 128}, 1), empty});
  const CheckpointReport report = run("out", recipe("mxfp8"));
  EXPECT_EQ(report.tensors.size(), 2U);
  const CheckpointReader out(path("out"));
  EXPECT_NE(out.find(hostile), nullptr);
  EXPECT_NE(out.find("none.weight"), nullptr);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root), {}), 2);
}

TEST_F(QuantizeCheckpointTest, WhatServersLoadAsOneHasOneAdvice) {
  write_model();
  const auto advice = [&](Dialect target) {
    std::filesystem::remove_all(path("out"));
    std::map<std::string, std::string> out;
    for (const TensorReport& tensor : run("out", recipe("nvfp4", target)).tensors)
      out[tensor.name] = tensor.advice;
    return out;
  };
  const auto served = advice(Dialect::compressed_tensors);
  const std::string prefix = "model.layers.0.";
  const std::string& q = served.at(prefix + "self_attn.q_proj.weight");
  EXPECT_TRUE(q.ends_with("servers fuse with it")) << q;
  EXPECT_EQ(q, served.at(prefix + "self_attn.k_proj.weight"));
  EXPECT_EQ(q, served.at(prefix + "self_attn.v_proj.weight"));
  EXPECT_FALSE(served.at(prefix + "mlp.down_proj.weight").ends_with("as one with it"));
  EXPECT_FALSE(advice(Dialect::octavo).at(prefix + "self_attn.q_proj.weight").ends_with("with it"));
}

// Unquantized weights with a quantized KV cache: its config and scales are kept, or a note says
// that they are dropped.
TEST_F(QuantizeCheckpointTest, AnFp8KvCacheIsKeptOrNotedAsLost) {
  const auto write = [&](const char* strategy) {
    std::filesystem::remove_all(path("model"));
    TestTensor scale =
        random_tensor("model.layers.0.self_attn.k_scale", {1}, 2, safetensors::StoredType::f32);
    const float half = 0.5F;
    std::memcpy(scale.bytes.data(), &half, sizeof half);
    write_tensors(save("model/model.safetensors", ""),
                  {random_tensor("model.layers.0.self_attn.k_proj.weight", {128, 128}, 1), scale});
    save("model/config.json",
         text(R"({"model_type": "llama", "quantization_config": {"quant_method": )",
              R"("compressed-tensors", "format": "dense", "kv_cache_scheme": {"num_bits": 8, )",
              R"("type": "float", "dynamic": false, "symmetric": true, "strategy": ")", strategy,
              R"("}}})"));
  };
  const auto notes_of = [](const CheckpointReport& report) {
    std::string out;
    for (const std::string& note : report.notes) out += note + "\n";
    return out;
  };
  write("tensor");
  EXPECT_FALSE(has(notes_of(run("ct", recipe("fp8-channel"))), "cache"));
  EXPECT_TRUE(
      CheckpointReader(path("ct")).config()["quantization_config"]["kv_cache_scheme"].is_object());
  (void)run("mo", recipe("nvfp4", Dialect::modelopt));
  const CheckpointReader mo(path("mo"));
  EXPECT_TRUE(mo.config()["quantization_config"]["kv_cache_scheme"].is_object());
  const StoredTensor* const scale = mo.find("model.layers.0.self_attn.k_proj.k_scale");
  ASSERT_NE(scale, nullptr);
  float value = 0;
  mo.read(*scale, 0, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 0.5F);
  const std::string lost = notes_of(run("ds", recipe("fp8-block", Dialect::deepseek)));
  EXPECT_TRUE(has(lost, "quantization is no longer declared")) << lost;
  write("attn_head");
  EXPECT_TRUE(has(notes_of(run("heads", recipe("fp8-channel"))), "no longer declared"));
  // Nothing is quantized, and everything stays unchanged.
  QuantizeCheckpointOptions nothing = recipe("nvfp4", Dialect::modelopt);
  nothing.plan.exclude = {"proj"};
  write("tensor");
  EXPECT_FALSE(has(notes_of(run("same", nothing)), "cache"));
  EXPECT_NE(CheckpointReader(path("same")).find("model.layers.0.self_attn.k_scale"), nullptr);
}

}  // namespace
}  // namespace octavo
