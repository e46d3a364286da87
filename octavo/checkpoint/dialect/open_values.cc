#include "octavo/checkpoint/dialect/open_values.h"

#include <map>
#include <memory>
#include <set>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/decoded_weight_internal.h"
#include "octavo/checkpoint/dialect/dialect_internal.h"
#include "octavo/checkpoint/dialect/found_parts_internal.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo {
namespace {

// What the sources of all files share: the checkpoint as it is, and its quantized weights.
struct Quantized {
  CheckpointReader checkpoint;
  std::map<std::string_view, const DecodedWeight*> by_name{};
  DecodedWeights weights;
};

// The values of one file.
class DecodedFile : public safetensors::TensorSource {
 public:
  DecodedFile(std::shared_ptr<const Quantized> of, safetensors::Header header)
      : of_(std::move(of)), header_(std::move(header)) {}

  [[nodiscard]] const safetensors::Header& header() const override { return header_; }

  void read(const safetensors::TensorEntry& tensor, std::uint64_t offset,
            std::span<std::byte> into) const override {
    const auto found = of_->by_name.find(tensor.name);
    if (found == of_->by_name.end())
      of_->checkpoint.read(of_->checkpoint.at(tensor.name), offset, into);
    else
      found->second->read(of_->checkpoint, offset, into);
  }

  [[nodiscard]] std::int64_t rows_together(const safetensors::TensorEntry& tensor) const override {
    const auto found = of_->by_name.find(tensor.name);
    return found == of_->by_name.end() ? 1 : found->second->rows_together();
  }

  [[nodiscard]] std::vector<std::size_t> files_of(
      const safetensors::TensorEntry& tensor) const override {
    std::vector<std::size_t> out;
    if (const auto found = of_->by_name.find(tensor.name); found != of_->by_name.end())
      for (const std::string& part : found->second->tensors())
        out.push_back(of_->checkpoint.at(part).file);
    return out;
  }

 private:
  std::shared_ptr<const Quantized> of_;
  safetensors::Header header_;
};

safetensors::TensorPlan values_of(const DecodedWeight& weight) {
  const auto type =
      safetensors::find_stored_type(safetensors::ElementType{weight.source(), {}, false});
  const auto sizes = weight.shape().sizes();
  return {weight.name(), *type, {sizes.begin(), sizes.end()}};
}

struct Found {
  std::string as;  // what the model is quantized as
  DecodedWeights weights{};
  std::vector<std::string> plain{};
};

// A form that octavo only reads stands alone: what else is in such a checkpoint has no scales.
Found only_read(const CheckpointReader& checkpoint, std::string as, DecodedWeights weights) {
  Found out{.as = std::move(as), .weights = std::move(weights)};
  std::set<std::string> taken;
  for (const auto& weight : out.weights)
    for (std::string& name : weight->tensors()) taken.insert(std::move(name));
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (taken.contains(tensor.name())) continue;
    check(!holds_fp8(tensor), ErrorCode::unsupported, kDialectOp, "'", shown(tensor.name(), 200),
          "' is ", stored_name(tensor.entry->type), " in a model that is quantized as ", out.as,
          "; expected one of the two; octavo reads no mix of them");
    out.plain.push_back(tensor.name());
  }
  return out;
}

Found found_in(const CheckpointReader& checkpoint) {
  if (DecodedWeights weights = gpt_oss_weights(checkpoint); !weights.empty())
    return only_read(checkpoint, "MXFP4 of gpt-oss", std::move(weights));
  Recognized recognized = recognize(checkpoint);
  Found out{.as = std::string(name_of(recognized.dialect)), .plain = std::move(recognized.plain)};
  if (!recognized.quantized) return out;
  for (FoundWeight& found : recognized.weights)
    out.weights.push_back(decoded_weight(recognized.dialect, std::move(found)));
  return out;
}

}  // namespace

CheckpointReader open_values(const std::string& path, OtherFiles others,
                             const std::string& deleted_shards) {
  CheckpointReader checkpoint(path, others, deleted_shards);
  Found found = found_in(checkpoint);
  if (found.weights.empty()) return checkpoint;
  std::vector<std::string> notes{
      text("the model is quantized (", found.as, ", ", counted(found.weights.size(), "weight"),
           "): its values are decoded as they are read, and what it lost stays lost")};
  if (cache_scheme_of(checkpoint) != CacheScheme::plain)
    notes.emplace_back("KV cache quantization is no longer declared; its scales stay");
  // Each weight is in the file of its codes.
  std::vector<std::vector<safetensors::TensorPlan>> files(checkpoint.files().size());
  for (const std::string& name : found.plain) {
    if (is_input_scale(name) || name.ends_with("scaled_fp8")) continue;
    const StoredTensor& tensor = checkpoint.at(name);
    files[tensor.file].push_back({name, tensor.entry->type, tensor.entry->shape});
  }
  for (const auto& weight : found.weights)
    files[checkpoint.at(weight->tensors().front()).file].push_back(values_of(*weight));
  Json config = checkpoint.config(), side = checkpoint.hf_quant_config();
  configure(Dialect::octavo, {}, config, side);
  const auto of = std::make_shared<Quantized>(
      Quantized{.checkpoint = std::move(checkpoint), .weights = std::move(found.weights)});
  for (const auto& weight : of->weights) of->by_name.emplace(weight->name(), weight.get());
  std::vector<std::shared_ptr<const safetensors::TensorSource>> sources;
  for (std::vector<safetensors::TensorPlan>& tensors : files)
    sources.push_back(std::make_shared<DecodedFile>(
        of, safetensors::place_tensors(std::move(tensors), {}, of->checkpoint.path())));
  return of->checkpoint.with_tensors(std::move(sources), std::move(config), std::move(notes));
}

}  // namespace octavo
