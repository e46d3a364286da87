#include "octavo/pipeline/plan/gguf_plan_internal.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/gguf_file.h"
#include "octavo/checkpoint/gguf/gguf_keys.h"
#include "octavo/checkpoint/gguf/gguf_names.h"
#include "octavo/checkpoint/gguf/gguf_writer.h"
#include "octavo/checkpoint/small_file_internal.h"
#include "octavo/pipeline/plan/plan_internal.h"

namespace octavo {
namespace {

using safetensors::StoredType;

constexpr std::string_view kOp = "quantize";
constexpr std::uint64_t kMaxTokenizerBytes = 64U << 20;

// Buffers that old checkpoints carry and every loader computes itself.
bool is_computed(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

bool has_file(const CheckpointReader& source, std::string_view name) {
  const auto& files = source.other_files();
  return std::find(files.begin(), files.end(), name) != files.end();
}

Json json_file(const CheckpointReader& source, const std::string& name) {
  if (!has_file(source, name)) return {};
  return parse_json(read_small_file(text(source.path(), "/", name), kMaxTokenizerBytes), name);
}

// Of a GGUF source its own, but for what is about the file and not about the model.
gguf::Metadata metadata_of(const CheckpointReader& source, std::vector<std::string>& notes) {
  if (const gguf::File* const file = source.gguf_file(); file != nullptr) {
    gguf::Metadata out = file->metadata();
    for (const std::string_view key : {"general.alignment", "general.file_type"})
      if (const auto at = out.find(key); at != out.end()) out.erase(at);
    return out;
  }
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(source.path(), ignored);
  gguf::Metadata out = gguf::keys_of_config(
      source.config(), (folder.has_filename() ? folder : folder.parent_path()).filename().string());
  const Json tokenizer = json_file(source, "tokenizer.json");
  if (tokenizer.is_null()) {
    out["tokenizer.ggml.model"] = gguf::string_value("none");
    notes.emplace_back("the source has no tokenizer.json: the file has no tokenizer");
    return out;
  }
  Json words = json_file(source, "tokenizer_config.json");
  if (!words["chat_template"].is_string() && has_file(source, "chat_template.jinja"))
    words.set("chat_template",
              read_small_file(text(source.path(), "/chat_template.jinja"), kMaxTokenizerBytes));
  gguf::add_vocabulary(tokenizer, words, source.config(), out);
  return out;
}

std::vector<float> rope_factors(const CheckpointReader& source) {
  return source.gguf_file() != nullptr ? source.gguf_file()->rope_factors()
                                       : gguf::rope_factors(source.config());
}

// The heads that the rows of a tensor are stored interleaved in; 0: they are not.
std::int64_t rope_heads(const Json& config, std::string_view name, std::int64_t rows) {
  const gguf::Architecture* const architecture = gguf::architecture_of_config(config);
  const bool q = name.find(".self_attn.q_proj.") != std::string_view::npos;
  const bool k = name.find(".self_attn.k_proj.") != std::string_view::npos;
  if (!architecture->rope_interleaved || (!q && !k)) return 0;
  const std::int64_t heads = config["num_attention_heads"].integer_or(0);
  const std::int64_t count = q ? heads : config["num_key_value_heads"].integer_or(heads);
  check(count > 0 && rows > 0 && count <= rows / 2 && rows % (2 * count) == 0,
        ErrorCode::invalid_argument, kOp, shown_tensor(name), " has ", rows, " rows for ", count,
        " heads; expected a multiple of twice that");
  return count;
}

// Of a tensor that is not quantized: llama.cpp takes vectors as f32 alone.
void plan_plain(const safetensors::TensorEntry& entry, DialectTensor& output) {
  output.plan.name = gguf::gguf_name(entry.name);
  if (output.plan.name.empty())
    fail(ErrorCode::unsupported, kOp, shown_tensor(entry.name),
         " has no name in llama.cpp that octavo knows; choose another target");
  const auto type = safetensors::element_type(entry.type);
  if (!type || !is_value(type->dtype))
    fail(ErrorCode::unsupported, kOp, shown_tensor(entry.name), " holds ",
         safetensors::stored_name(entry.type), "; expected floating-point numbers for a GGUF file");
  StoredType& written = output.plan.type;
  if (entry.shape.size() < 2 || written == StoredType::f64) written = StoredType::f32;
  output.block_type = written == StoredType::f16    ? "F16"
                      : written == StoredType::bf16 ? "BF16"
                                                    : "F32";
}

void check_vocabulary(const CheckpointReader& source) {
  const StoredTensor* const embedding = source.find("model.embed_tokens.weight");
  const std::int64_t wanted = source.config()["vocab_size"].integer_or(0);
  check(embedding != nullptr && !embedding->entry->shape.empty() &&
            static_cast<std::int64_t>(embedding->entry->shape.front()) == wanted,
        ErrorCode::invalid_argument, kOp, "'", shown(source.path(), 200),
        "' has no embedding of vocab_size ", wanted,
        " rows, without which llama.cpp loads no model; get all of it");
}

}  // namespace

StoredType plain_type(const CheckpointReader& source, StoredType type) {
  const auto element = safetensors::element_type(type);
  if (!source.is_gguf() || !element || !is_value(element->dtype)) return type;
  const std::string_view dtype = source.config()["dtype"].string_or("");
  return dtype == "bfloat16"  ? StoredType::bf16
         : dtype == "float16" ? StoredType::f16
         : dtype == "float32" ? StoredType::f32
                              : type;
}

void plan_gguf(const CheckpointReader& source, QuantizePlan& plan) {
  auto parts = std::make_shared<GgufParts>();
  const gguf::Metadata metadata = metadata_of(source, plan.notes);
  check(gguf::architecture_of_config(source.config()) != nullptr, ErrorCode::unsupported, kOp,
        "the source is of no architecture that octavo writes GGUF files of: ",
        gguf::known_architectures(), "; choose another target");
  check_vocabulary(source);
  parts->metadata = gguf::metadata_bytes(metadata);
  parts->keys = metadata.size();
  std::erase_if(plan.actions, [&](const TensorAction& action) {
    return !action.quantize && is_computed(source.tensors()[action.tensor].name());
  });
  for (TensorAction& action : plan.actions) {
    const safetensors::TensorEntry& entry = *source.tensors()[action.tensor].entry;
    DialectTensor& output = action.outputs.front();
    if (!action.quantize) plan_plain(entry, output);
    const std::string& name = action.quantize ? action.weight.name : entry.name;
    const auto rows = output.plan.shape.empty() ? 0 : output.plan.shape.front();
    output.rope_heads = rope_heads(source.config(), name, static_cast<std::int64_t>(rows));
  }
  if (const std::vector<float> factors = rope_factors(source); !factors.empty()) {
    DialectTensor output{.plan = {.name = std::string(gguf::kRopeFactors),
                                  .type = StoredType::f32,
                                  .shape = {factors.size()}},
                         .part = Part::marker,
                         .block_type = "F32"};
    output.constant.resize(factors.size() * sizeof(float));
    std::memcpy(output.constant.data(), factors.data(), output.constant.size());
    parts->constants.push_back(std::move(output));
  }
  plan.gguf = std::move(parts);
}

}  // namespace octavo
