// LayerFiles: what GPTQ made, in a folder, a safetensors file of octavo's own for each layer, until
// the pipeline has written it in the target's dialect.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/model/gptq/gptq_layer_internal.h"
#include "octavo/pipeline/plan/made_codes.h"

namespace octavo::gptq_detail {

struct LayerErrors {
  double error = 0.0, rounded_error = 0.0;  // as in GptqResult
};

class LayerFiles : public MadeCodes {
 public:
  LayerFiles(std::string folder, std::string method)
      : folder_(std::move(folder)), method_(std::move(method)) {}

  void store(std::int64_t layer, const LayerCodes& codes) const;
  // Of layers [0, count). Throws Error(invalid_argument) where one is missing or damaged.
  void open(std::int64_t count);
  void remove(std::int64_t count) const;
  [[nodiscard]] const std::map<std::string, LayerErrors>& errors() const { return errors_; }

  [[nodiscard]] std::string method() const override { return method_; }
  [[nodiscard]] bool has(const std::string& weight) const override {
    return found_.contains(weight);
  }
  [[nodiscard]] QuantizedTensor rows(const std::string& weight, std::int64_t first,
                                     std::int64_t count) const override;

 private:
  [[nodiscard]] std::string path_of(std::int64_t layer, const char* ending) const;

  struct Found {
    const CheckpointReader* file = nullptr;
    FoundWeight weight;
  };
  std::string folder_, method_;
  std::vector<std::unique_ptr<const CheckpointReader>> files_;
  std::map<std::string, Found> found_;
  std::map<std::string, LayerErrors> errors_;
};

}  // namespace octavo::gptq_detail
