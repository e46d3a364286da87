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
  // In f32: what enters and leaves attention and MLP, Q, K, V and the heads' result, and gate, up
  // and their product. Experts see top_k copies of a token.
  [[nodiscard]] std::int64_t scratch_nbytes(std::int64_t tokens) const override {
    const ModelConfig& config = files_.config();
    const std::int64_t heads = 2 * (config.heads + config.kv_heads) * config.head_size;
    const std::int64_t expert =
        config.experts.top_k * (2 * config.experts.intermediate + 2 * config.hidden);
    const std::int64_t inner = std::max(3 * config.intermediate, expert);
    // And the input of a product rounded to bf16.
    const std::int64_t rounded =
        shape_.activations == DType::bf16 ? tokens * 2 * std::max(config.hidden, inner / 3) : 0;
    return tokens * 4 * (4 * config.hidden + std::max(heads, inner)) + rounded;
  }

  void embed(std::span<const std::int32_t> ids, const View& into) const override {
    files_.embed(ids, into);
  }
  void final_norm(const View& hidden) const override { files_.final_norm(hidden); }
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
