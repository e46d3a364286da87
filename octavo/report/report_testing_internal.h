// A report of a synthetic model: some layers, real quantizations of random weights.
#pragma once

#include <cmath>
#include <random>
#include <string>

#include "octavo/quant/quantize.h"
#include "octavo/report/checkpoint_report.h"
#include "octavo/report/expected_error_internal.h"

namespace octavo::testing {

// Normal weights of standard deviation `sigma`, one in `outlier` of them fifty times as large.
inline TensorReport sample_tensor(const std::string& module, std::string_view preset_name,
                                  double sigma, int outlier = 0, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, static_cast<float>(sigma));
  Tensor x = Tensor::values(Shape{64, 256}, DType::f32);
  for (float& value : x.span<float>()) {
    value = normal(random);
    if (outlier > 0 && random() % static_cast<unsigned>(outlier) == 0) value *= 50.0F;
  }
  const QuantizedTensor q = quantize(x.view(), preset(preset_name));
  TensorReport out;
  out.name = module + ".weight";
  out.module = module;
  out.shape = {64, 256};
  out.source = "float32";
  out.preset = preset_name;
  out.scaling = describe(q.scaling);
  out.bytes_before = 64 * 256 * 4;
  out.measured = true;
  out.metrics = measure_error(x.view(), q, {.histograms = true});
  out.bytes_after = static_cast<std::uint64_t>(out.metrics.bits_per_value * 64 * 256 / 8);
  out.scale_histogram.resize(256);
  const int least = std::ilogb(out.metrics.scales.least),
            most = std::ilogb(out.metrics.scales.most);
  for (int e = least; e <= most; ++e)
    out.scale_histogram[static_cast<std::size_t>(e + 127)] =
        out.metrics.scales.count / (most - least + 1);
  const ExpectedError expected = expected_error(preset(preset_name), out.shape);
  out.expected_sqnr = expected.sqnr;
  out.expected_cosine = expected.cosine;
  out.advice = advice_for(out);
  return out;
}

inline CheckpointReport sample_report(int layers, std::string_view preset_name) {
  CheckpointReport report;
  report.title = "sample";
  report.source = "models/sample";
  report.output = "out";
  report.recipe = preset_name;
  report.target = "compressed-tensors";
  report.provenance = {{"version", "0"}, {"rule", "rceil"}};
  report.seconds = 1.5;
  const auto plain = [&](const std::string& name, const std::string& why) {
    TensorReport tensor;
    tensor.name = name;
    tensor.shape = {4096};
    tensor.source = "bfloat16";
    tensor.bytes_before = tensor.bytes_after = 8192;
    tensor.why = why;
    report.tensors.push_back(tensor);
  };
  plain("model.embed_tokens.weight", "an embedding");
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    unsigned seed = static_cast<unsigned>(layer) * 8;
    plain(at + "input_layernorm.weight", "a norm");
    for (const char* module :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      const bool odd = module[0] == 'm' && module[4] == 'd' && layer % 9 == 1;
      report.tensors.push_back(sample_tensor(at + module, preset_name, 0.02 / (1 + layer % 3),
                                             odd ? 97 : (layer < 2 ? 400 : 0), ++seed));
    }
  }
  for (const TensorReport& tensor : report.tensors) {
    report.bytes_before += tensor.bytes_before;
    report.bytes_after += tensor.bytes_after;
    if (tensor.measured) report.bits_per_weight = tensor.metrics.bits_per_value;
  }
  report.notes = {"lm_head.weight is tied to the embedding and was left as it is"};
  return report;
}

}  // namespace octavo::testing
