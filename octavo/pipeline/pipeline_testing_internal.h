// A small model on disk, for tests of the pipeline.
#pragma once

#include <string>
#include <vector>

#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo {

class PipelineTest : public CheckpointTest {
 protected:
  // Two layers of a Llama in two shards, about 3 MB of bf16: several row blocks for the larger
  // weights.
  void write_model(const std::string& name = "model") const {
    std::filesystem::create_directory(root / name);
    unsigned seed = 1;
    std::string map;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = text("model.layers.", layer, ".");
      std::vector<TestTensor> tensors;
      const auto add = [&](const std::string& tensor, std::vector<std::uint64_t> shape) {
        tensors.push_back(random_tensor(tensor, std::move(shape), seed++));
      };
      if (layer == 0) add("model.embed_tokens.weight", {160, 256});
      if (layer == 1) add("lm_head.weight", {160, 256});
      add(prefix + "self_attn.q_proj.weight", {256, 256});
      add(prefix + "self_attn.k_proj.weight", {128, 256});
      add(prefix + "self_attn.v_proj.weight", {128, 256});
      add(prefix + "mlp.gate_proj.weight", {1280, 256});
      add(prefix + "mlp.up_proj.weight", {1280, 256});
      add(prefix + "mlp.down_proj.weight", {256, 1280});
      add(prefix + "mlp.gate.weight", {8, 256});
      add(prefix + "input_layernorm.weight", {256});
      const std::string file = text("model-0000", layer + 1, "-of-00002.safetensors");
      write_tensors(path(name + "/" + file), tensors);
      for (const TestTensor& tensor : tensors)
        map += text(map.empty() ? "" : ", ", "\"", tensor.plan.name, "\": \"", file, "\"");
    }
    save(name + "/model.safetensors.index.json", text(R"({"weight_map": {)", map, "}}"));
    save(name + "/config.json",
         R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256})");
    save(name + "/tokenizer.json", "{\"a\": 1}");
  }

  [[nodiscard]] CheckpointReport run(const std::string& out,
                                     const QuantizeCheckpointOptions& options = {}) const {
    return quantize_checkpoint(path("model"), path(out), options);
  }
  [[nodiscard]] std::string refusal(const std::string& out, ErrorCode code,
                                    const QuantizeCheckpointOptions& options = {}) const {
    return message_of([&] { (void)run(out, options); }, code);
  }
};

inline QuantizeCheckpointOptions recipe(const std::string& name,
                                        Dialect target = Dialect::compressed_tensors) {
  QuantizeCheckpointOptions options;
  options.plan.recipe = name;
  options.plan.target = target;
  return options;
}

}  // namespace octavo
