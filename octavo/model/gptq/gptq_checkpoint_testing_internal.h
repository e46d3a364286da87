// Shared by the tests of gptq_checkpoint: a small model in files, and token ids to calibrate by.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "octavo/base/error_testing_internal.h"
#include "octavo/model/gptq/gptq_checkpoint.h"
#include "octavo/model/model_testing_internal.h"

namespace octavo {

class GptqCheckpoint : public CheckpointTest {
 protected:
  std::string written(TinyModel model, const std::string& name = "model") {
    model.fill();
    save(name + "/config.json", model.config().dump());
    write_tensors(path(name + "/model.safetensors"), model.tensors);
    return path(name);
  }
  // Widths of whole groups.
  static TinyModel dense() {
    return {.hidden = 64, .heads = 4, .kv_heads = 2, .head_size = 16, .mid = 96};
  }

  static GptqCalibration by_ids(std::size_t count) {
    GptqCalibration out{.window = 32};
    EvalText ids{.name = "ids", .ids = std::vector<std::int32_t>()};
    for (std::size_t i = 0; i < count; ++i)
      ids.ids->push_back(static_cast<std::int32_t>((i * i * 7 + i / 3) % 50));
    out.texts.push_back(ids);
    return out;
  }
  static QuantizeCheckpointOptions as(const std::string& recipe, int threads = 2) {
    return {.plan = {.recipe = recipe}, .threads = threads};
  }

  [[nodiscard]] std::string weights_in(const std::string& folder) const {
    std::ifstream file(path(folder + "/model.safetensors"), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Stops after the first layer; its state stays in `out` with ".gptq" at its end.
  void stop_after_a_layer(const std::string& model, const std::string& out,
                          QuantizeCheckpointOptions options, const GptqCalibration& texts) const {
    options.on_progress = [](const Progress& progress) {
      return progress.current.find("layer 1") == std::string::npos;
    };
    error_testing::expect_refused(ErrorCode::io, "resume",
                                  [&] { (void)gptq_checkpoint(model, path(out), options, texts); });
  }
};

}  // namespace octavo
