// ModelFiles as an EvalModel.
#include <algorithm>
#include <optional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/model/eval/eval_model_internal.h"
#include "octavo/model/model_files.h"
#include "octavo/model/tokenizer/tokenizer.h"

namespace octavo::eval {
namespace {

class FilesModel : public EvalModel {
 public:
  FilesModel(const std::string& path, const ModelFilesOptions& options)
      : files_(path, options), name_(path), threads_(options.threads) {
    const ModelConfig& config = files_.config();
    shape_ = {.vocabulary = config.vocabulary,
              .hidden = config.hidden,
              .layers = config.layers,
              .max_positions = config.max_positions,
              .logits_cap = config.logits_cap,
              .activations = options.activations};
    tokenizer_json_ = files_.text_file("tokenizer.json");
  }

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const EvalShape& shape() const override { return shape_; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return files_.fingerprint(); }
  [[nodiscard]] bool has_tokenizer() const override { return !tokenizer_json_.empty(); }
  [[nodiscard]] std::vector<std::int32_t> tokenize(std::string_view text) const override {
    return Tokenizer::from_json(tokenizer_json_, files_.text_file("tokenizer_config.json"))
        .encode(text);
  }

  [[nodiscard]] EvalLayer load_layer(std::int64_t index) const override {
    return [layer = files_.load_layer(index), threads = threads_](const View& hidden,
                                                                  const LayerObserver* observer) {
      layer.forward({.hidden = hidden, .observer = observer, .run = {.threads = threads}});
    };
  }
  [[nodiscard]] std::int64_t layer_nbytes(std::int64_t index) const override {
    return files_.layer_nbytes(index);
  }
  [[nodiscard]] std::vector<LayerInput> layer_inputs(std::int64_t index) const override {
    return files_.layer_inputs(index);
  }
  // In f32: what enters and leaves attention and MLP, Q, K, V and the heads' result, and gate, up
  // and their product. Experts see top_k copies of a token.
  [[nodiscard]] std::int64_t scratch_nbytes(std::int64_t tokens) const override {
    const ModelConfig& config = files_.config();
    // In f64: each number of a config.json may be near 2^31, and products of three are larger than
    // an integer.
    const auto hidden = static_cast<double>(config.hidden);
    const double heads = 2.0 * static_cast<double>(config.heads + config.kv_heads) *
                         static_cast<double>(config.head_size);
    const double expert = static_cast<double>(config.experts.top_k) *
                          (2.0 * static_cast<double>(config.experts.intermediate) + 2.0 * hidden);
    const double inner = std::max(3.0 * static_cast<double>(config.intermediate), expert);
    double of_token = 4.0 * (4.0 * hidden + std::max(heads, inner));
    // And the input of a product rounded to bf16.
    if (shape_.activations == DType::bf16) of_token += 2.0 * std::max(hidden, inner / 3.0);
    constexpr double kMost = 0x1p60;  // more than any machine has
    return static_cast<std::int64_t>(std::min(static_cast<double>(tokens) * of_token, kMost));
  }

  void embed(std::span<const std::int32_t> ids, const View& into) const override {
    files_.embed(ids, into);
  }
  void final_norm(const View& hidden) const override { files_.final_norm(hidden); }
  [[nodiscard]] InputQuantization head_input() const override { return files_.head_input(); }
  [[nodiscard]] LinearWeight load_head(std::int64_t first, std::int64_t count) const override {
    return files_.load_head(first, count);
  }

 private:
  ModelFiles files_;
  std::string name_, tokenizer_json_;
  int threads_;
  EvalShape shape_{};
};

}  // namespace

std::unique_ptr<EvalModel> open_eval_model(const std::string& path,
                                           const ModelFilesOptions& options) {
  return std::make_unique<FilesModel>(path, options);
}

}  // namespace octavo::eval
