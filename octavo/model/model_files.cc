#include "octavo/model/model_files.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/checkpoint/verify/architecture_internal.h"
#include "octavo/model/config_values_internal.h"
#include "octavo/model/layer_builder_internal.h"
#include "octavo/model/model_fingerprint_internal.h"
#include "octavo/model/weight_files_internal.h"
#include "octavo/nn/converted_internal.h"
#include "octavo/nn/norm_layer.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "model";
constexpr std::uint64_t kMostText = std::uint64_t{256} << 20;  // tokenizers have a few MB

std::set<std::string> names_of(const WeightFiles& files) {
  std::set<std::string> names;
  for (const StoredTensor& tensor : files.reader().tensors()) names.insert(tensor.name());
  return names;
}

// The head of a model that is a part of a larger one may be beside that. One in the files is used
// where the config ties it, too, as transformers 5 does it: trained apart, it is another matrix.
std::string head_name(const WeightFiles& files, const ModelConfig& config,
                      const std::string& embedding) {
  for (const char* name : {"lm_head.weight", "language_model.lm_head.weight"})
    if (files.has(name)) return name;
  return config.tied_head ? embedding : "lm_head.weight";
}

// Tokens that end a text, where generation_config.json names others than config.json.
void add_eos(const std::string& text, ModelConfig& config) {
  if (text.empty()) return;
  const Json json = parse_json(text, "generation_config.json");
  const auto add = [&](const Json& id) {
    const std::int64_t number = id.integer_or(-1);
    if (number < 0 || number >= config.vocabulary) return;
    const auto token = static_cast<std::int32_t>(number);
    if (std::ranges::find(config.eos, token) == config.eos.end()) config.eos.push_back(token);
  };
  add(json["eos_token_id"]);
  for (const Json& id : json["eos_token_id"].elements()) add(id);
}

}  // namespace

struct ModelFiles::State {
  State(const std::string& path, const ModelFilesOptions& given)
      : options(given),
        files(path, given.weights, given.threads),
        config(parse_model_config(files.reader().config())) {}

  [[nodiscard]] LayerBuilder builder() const { return {files, config, prefix, ropes, options}; }

  ModelFilesOptions options;
  WeightFiles files;
  ModelConfig config;
  std::string prefix{}, embedding{}, head{};
  std::vector<std::shared_ptr<const RotaryEmbedding>> ropes{};
  NormLayer norm{};
};

ModelFiles::ModelFiles(const std::string& path, const ModelFilesOptions& options) {
  check(options.device.kind == DeviceKind::cpu, ErrorCode::unsupported, kOp, "got the device ",
        to_string(options.device), "; models run on the CPU today");
  check(!options.weights || *options.weights == DType::f32 || *options.weights == DType::bf16 ||
            *options.weights == DType::f16,
        ErrorCode::wrong_type, kOp, "got weights of ",
        options.weights && is_value(*options.weights) ? dtype_name(*options.weights) : "codes",
        "; expected float32, bfloat16 or float16");
  check(options.activations == DType::f32 || options.activations == DType::bf16,
        ErrorCode::wrong_type, kOp, "got activations of ",
        is_value(options.activations) ? dtype_name(options.activations) : "codes",
        "; expected float32 or bfloat16");
  state_ = std::make_unique<State>(path, options);
  State& state = *state_;
  const WeightFiles& files = state.files;
  for (const RotaryEmbedding& rope : state.config.ropes)
    state.ropes.push_back(std::make_shared<const RotaryEmbedding>(rope));
  state.prefix = model_prefix(names_of(files)).value_or("model.");
  state.embedding = state.prefix + "embed_tokens.weight";
  state.head = head_name(files, state.config, state.embedding);
  const Shape table{state.config.vocabulary, state.config.hidden};
  files.check_shape(state.embedding, table);
  files.check_shape(state.head, table);
  files.check_shape(state.prefix + "norm.weight", {state.config.hidden});
  const LayerBuilder builder = state.builder();
  for (std::int64_t layer = 0; layer < state.config.layers; ++layer)
    (void)builder.check_layer(layer);
  state.norm = {.kind = NormKind::rms,
                .weight = files.values(state.prefix + "norm.weight"),
                .epsilon = state.config.norm_epsilon,
                .zero_centred = state.config.norm_zero_centred};
  add_eos(text_file("generation_config.json"), state.config);
}

ModelFiles::~ModelFiles() = default;
ModelFiles::ModelFiles(ModelFiles&&) noexcept = default;
ModelFiles& ModelFiles::operator=(ModelFiles&&) noexcept = default;

const std::string& ModelFiles::path() const { return state_->files.reader().path(); }
const ModelConfig& ModelFiles::config() const { return state_->config; }

std::string ModelFiles::text_file(const std::string& name) const {
  const CheckpointReader& reader = state_->files.reader();
  if (reader.is_gguf()) {
    const auto& others = reader.other_files();
    return std::ranges::find(others, name) == others.end() ? "" : reader.made_file(name);
  }
  const std::filesystem::path path(reader.path());
  const std::filesystem::path file = (reader.is_folder() ? path : path.parent_path()) / name;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return "";
  return read_small_file(file.string(), kMostText);
}

Tokenizer ModelFiles::load_tokenizer() const {
  const std::string json = text_file("tokenizer.json");
  check(!json.empty(), ErrorCode::invalid_argument, kOp, "there is no tokenizer.json beside '",
        shown(path(), 200), "', which turns text into tokens; get the model's own, or give ids");
  return Tokenizer::from_json(json, text_file("tokenizer_config.json"));
}

std::uint64_t ModelFiles::fingerprint() const { return model_fingerprint(state_->files.reader()); }

DecoderLayer ModelFiles::load_layer(std::int64_t index) const {
  check(index >= 0 && index < state_->config.layers, ErrorCode::invalid_argument, kOp, "got layer ",
        index, "; expected 0 to ", state_->config.layers - 1);
  auto parts = std::make_shared<DecoderLayer::Parts>();
  parts->layer = state_->builder().build(index);
  parts->hidden = state_->config.hidden;
  parts->max_positions = state_->config.max_positions;
  return DecoderLayer(std::move(parts));
}

Embedding ModelFiles::load_embedding() const {
  return {.weight = state_->files.values(state_->embedding),
          .scale = state_->config.embedding_scale};
}

void ModelFiles::embed(std::span<const std::int32_t> ids, const View& into) const {
  const ModelConfig& config = state_->config;
  for (std::size_t i = 0; i < ids.size(); ++i)
    check(ids[i] >= 0 && ids[i] < config.vocabulary, ErrorCode::invalid_argument, kOp, "got id ",
          ids[i], " at position ", i, "; expected 0 to ", config.vocabulary - 1,
          ", the model's vocabulary: are these ids of another tokenizer?");
  const auto count = static_cast<std::int64_t>(ids.size());
  if (into.shape != Shape{count, config.hidden})
    fail(ErrorCode::invalid_argument, kOp, "the embeddings have shape ", to_string(into.shape),
         "; expected ", to_string(Shape{count, config.hidden}));
  // In the order of ids, so that every row is read once: of codes the rows that share scales.
  std::vector<std::int64_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  const auto id_at = [&](std::int64_t i) { return ids[static_cast<std::size_t>(i)]; };
  std::ranges::stable_sort(order, {}, id_at);
  const std::int64_t together = state_->files.rows_together(state_->embedding);
  Embedding some{.scale = config.embedding_scale};
  std::int64_t first = 0, end = 0;  // of the rows in it
  for (const std::int64_t i : order) {
    const std::int64_t id = id_at(i);
    if (id >= end) {
      first = id / together * together;
      end = std::min(first + together, config.vocabulary);
      some.weight = state_->files.row_values(state_->embedding, first, end - first);
    }
    View row = into;
    row.data = static_cast<std::byte*>(into.data) + i * into.strides[0];
    row.shape = {1, config.hidden};
    const auto at = static_cast<std::int32_t>(id - first);
    some.forward_into({&at, 1}, row);
  }
}

void ModelFiles::final_norm(const View& hidden) const {
  const Tensor normed = state_->norm.forward(hidden);
  convert_into(normed.view(), hidden, kOp);
}

const NormLayer& ModelFiles::load_norm() const { return state_->norm; }
bool ModelFiles::has_tied_head() const { return state_->head == state_->embedding; }

LinearWeight ModelFiles::load_head(std::int64_t first, std::int64_t count) const {
  const std::int64_t rows = state_->config.vocabulary;
  check(first >= 0 && count >= 0 && first <= rows && count <= rows - first,
        ErrorCode::invalid_argument, kOp, "got rows ", first, " to ", first + count,
        " of the head; expected rows of the ", rows, " there are");
  return state_->files.rows(state_->head, first, count);
}

// A tied head is the embedding's rows, whose input no checkpoint quantizes.
InputQuantization ModelFiles::head_input() const {
  InputQuantization out =
      has_tied_head() ? InputQuantization{} : state_->files.input_of(state_->head);
  if (!out.scaling) out.values = state_->options.activations;
  return out;
}

std::vector<LayerInput> ModelFiles::layer_inputs(std::int64_t index) const {
  check(index >= 0 && index < state_->config.layers, ErrorCode::invalid_argument, kOp, "got layer ",
        index, "; expected 0 to ", state_->config.layers - 1);
  return state_->builder().inputs(index);
}

std::int64_t ModelFiles::layer_nbytes(std::int64_t index) const {
  check(index >= 0 && index < state_->config.layers, ErrorCode::invalid_argument, kOp, "got layer ",
        index, "; expected 0 to ", state_->config.layers - 1);
  return state_->builder().check_layer(index);
}

}  // namespace octavo
